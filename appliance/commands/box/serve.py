"""`rocketbox serve`: run the box until SIGTERM or SIGINT, then exit 0 within five seconds.

A member of a group that leads has five more to hand over.
"""

import argparse
import errno
import logging
import os
import resource
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import trio

from appliance.commands.settings import add_config_arguments, chosen_config, config_file, data_folder
from appliance.configuration.config import unknown_variables
from appliance.configuration.settings import Config
from appliance.errors import ConfigError, PortTaken, only_cause
from appliance.gc_tuning import settle
from appliance.logs import start_logging
from appliance.opening import refuse_apache_folder, refuse_root
from appliance.ports import Ports, open_ports
from appliance.serve import Ready, serve
from appliance.supervision import FAREWELL_S, TIRED_EXIT, RestartLoop, Supervision
from storage_driver.errors import LogFailed, StateDamaged, StoreRefused
from storage_driver.files.disk import SPACE_ERRORS
from storage_driver.files.free_space import make_room
from uplink_spark.bounds import PORT
from watchdog.errors import SettingIllegal

STOP_S = 4.0  # of the five seconds a stop may take
log = logging.getLogger("appliance")
CODES: tuple[tuple[type[Exception], int], ...] = (
    (ConfigError, 78),
    (SettingIllegal, 78),
    (RestartLoop, TIRED_EXIT),
    (PortTaken, 2),
    (StoreRefused, 75),
    (StateDamaged, 74),
    (LogFailed, 74),
    (OSError, 74),
)
EXPECTED: tuple[type[Exception], ...] = (ExceptionGroup, *(kind for kind, _ in CODES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_config_arguments(parser)
    parser.add_argument("--namesrv-port", type=PORT, metavar="N", help="port of the name server; 0: any free one")
    parser.add_argument("--broker-port", type=PORT, metavar="N", help="port of the broker; 0: any free one")
    parser.add_argument("--uplink", metavar="HOST:PORT", help="ship the log to this gateway")


def run(arguments: argparse.Namespace) -> int:
    """Serve; return the exit code."""
    handler = start_logging()
    use_all_descriptors()
    given = {
        "listen.namesrv_port": arguments.namesrv_port,
        "listen.broker_port": arguments.broker_port,
        "uplink.gateway": arguments.uplink,
    }
    try:
        data = data_folder(arguments)
        refuse_apache_folder(data)
        refuse_root(data)
        config = chosen_config(arguments, data, {key: value for key, value in given.items() if value is not None})
        for unknown in unknown_variables(os.environ):
            log.warning("event=variable_ignored text='it sets nothing: %s' next_step='see config reference'", unknown)
        supervision = begin(config, data, config_file(arguments))
        trio.run(_until_signal, config, data, supervision)
    except EXPECTED as exc:
        cause = only_cause(exc)
        code = next((code for kind, code in CODES if isinstance(cause, kind)), None)
        if code is None:
            raise
        text = disk_trouble(cause, data_folder(arguments)) if isinstance(cause, OSError) else str(cause)
        handler.say(f"rocketbox: {text}")
        return code
    return 0


def begin(config: Config, data: Path, file: Path | None) -> Supervision:
    """Note the start, also on a disk that is full to the last block. Raises as Supervision.begin."""
    try:
        return Supervision.begin(config, data, file, os.environ)
    except OSError as exc:
        if exc.errno not in SPACE_ERRORS or not make_room(data / "store"):
            raise
        return Supervision.begin(config, data, file, os.environ)


def use_all_descriptors() -> None:
    """Raise the limit of open files to what this user may have: a shell's 1024 are fewer than limits.connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # a sandbox may forbid the call
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def disk_trouble(cause: OSError, data: Path) -> str:
    """Return one sentence with the next step: the data folder cannot be used."""
    if cause.errno == errno.EROFS:
        step = "its file system takes no writes: see dmesg, check it (fsck), mount it for writing"
    elif cause.errno in (errno.EACCES, errno.EPERM):
        step = f"it must be writable for user {os.geteuid()} (ls -l, lsattr)"
    elif cause.errno in SPACE_ERRORS:
        step = "free space and files there (df, df -i)"
    else:
        step = "check what is at this path"
    return f"{cause.filename or data}: {cause.strerror or cause}; {step}, or choose another data folder: --data DIR"


async def _until_signal(config: Config, data: Path, supervision: Supervision) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        ports = await open_ports(config, os.environ)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve, config, data, ports, supervision)
            await anext(signals)
            at_last = threading.Timer(STOP_S + (FAREWELL_S if supervision.farewells else 0), cut_short)
            at_last.daemon = True
            at_last.start()
            await supervision.stopping()
            nursery.cancel_scope.cancel()
    at_last.cancel()


def cut_short() -> None:
    """End the process although a thread still works on files: recovery can do without, what was promised is on disk."""
    log.warning("event=stop_cut_short after_s=%s next_step=none", STOP_S)
    for handler in logging.getLogger().handlers:
        handler.flush()
    os._exit(0)


async def _serve(config: Config, data: Path, ports: Ports, supervision: Supervision) -> None:
    async with trio.open_nursery() as nursery:
        asking = await nursery.start(supervision.keep_extending)

        def ready(said: Ready) -> None:
            again = asking.cancel_called
            asking.cancel()
            settle()
            announce(said, again=again)

        await serve(config, data, ports, ready=ready, supervision=supervision)


def announce(ready: Ready, *, again: bool) -> None:
    """Print the one line that says the box serves; again: after a change of its leader, in as long as that took."""
    print(ready.line(ready.took_ms if again else process_age_ms()), flush=True)


def process_age_ms() -> int:
    """Return the milliseconds since this process was started; 10 ms are the clock's steps. Source: proc_pid_stat(5)."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return int(1000 * (time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")))
