"""Apache's own NameServer and broker as child processes, from jars in .cache/: to see what clients do against them."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.interop import jars
from tests.interop.box import until
from tests.interop.wire import route
from tests.ports import apache_port

BOOT_S = 150  # of 15 on a quiet machine
OPEN = ["java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/java.nio"]
LOGBACK = '<configuration><root level="OFF"/></configuration>'


@contextmanager
def apache_cluster(version: str, folder: Path, *, heap_mb: int = 512) -> Iterator[str]:
    """Run both in a folder and give the NameServer's address. Raises jars.Unavailable."""
    command = _command(version, folder, ("namesrv", "broker"))
    namesrv = f"127.0.0.1:{_settings(folder / 'namesrv.conf', {})}"
    with ExitStack() as running:
        line = [*command, "-Xmx256m", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", "namesrv.conf"]
        running.enter_context(_started(line, folder, "namesrv"))
        running.enter_context(_broker(command, folder, namesrv, heap_mb))
        yield namesrv


@contextmanager
def apache_broker(
    version: str, folder: Path, namesrv: str, *, heap_mb: int = 512
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a broker named `apache` at somebody's NameServer and give its process. Raises jars.Unavailable."""
    with _broker(_command(version, folder, ("broker",)), folder, namesrv, heap_mb) as process:
        yield process


def _command(version: str, folder: Path, parts: tuple[str, ...]) -> list[str]:
    """Return the beginning of the command lines, with what they need put into the folder."""
    java = jars.java_command()
    classes = [str(jar) for part in parts for jar in jars.fetch(version, f"rocketmq-{part}")]
    (folder / "conf").mkdir(parents=True)
    for part in parts:
        (folder / "conf" / f"logback_{part}.xml").write_text(LOGBACK)
    opened = [f"--add-{how}={name}=ALL-UNNAMED" for name in OPEN for how in ("opens", "exports")]
    return [*java, *opened, f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}", "-cp", ":".join(classes)]


@contextmanager
def _broker(command: list[str], folder: Path, namesrv: str, heap_mb: int) -> Iterator["subprocess.Popen[bytes]"]:
    store = folder / "store"
    own = {"brokerName": "apache", "brokerIP1": "127.0.0.1", "namesrvAddr": namesrv, "flushDiskType": "SYNC_FLUSH"}
    own["waitTimeMillsInSendQueue"] = "10000"  # of 200: a loaded machine must not look like a broker that refuses
    own |= {"transactionTimeOut": "1000", "transactionCheckInterval": "2000"}  # ms, of 6 and 60 s
    places = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    _settings(folder / "broker.conf", {**own, **places, "enablePropertyFilter": "true"})
    line = [*command, f"-Xmx{heap_mb}m", "org.apache.rocketmq.broker.BrokerStartup", "-c", "broker.conf"]
    with _started(line, folder, "broker") as process:
        # A first registration that a busy NameServer missed comes again after ten seconds; without it no topic is made.
        until(lambda: b'"apache"' in route(namesrv, "TBW102"), seconds=BOOT_S, what="Apache's broker is not registered")
        yield process


def _settings(path: Path, settings: dict[str, object]) -> int:
    port = apache_port()
    path.write_text("".join(f"{name}={value}\n" for name, value in {"listenPort": port, **settings}.items()))
    return port


@contextmanager
def _started(command: list[str], folder: Path, part: str) -> Iterator["subprocess.Popen[bytes]"]:
    said = folder / f"{part}.out"
    with said.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + BOOT_S
        while "boot success" not in said.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                tail = said.read_text(errors="replace")[-300:]
                raise jars.Unavailable(f"Apache's {part} did not start within {BOOT_S} s: {tail}")
            time.sleep(0.2)
        yield process
    finally:
        process.kill()
        process.wait()
