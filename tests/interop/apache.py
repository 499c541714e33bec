"""Apache's own NameServer and broker as child processes, from jars in .cache/: to see what clients do against them."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import jars
from tests.interop.box import until
from tests.interop.wire import route
from tests.ports import apache_port

BOOT_S = 150  # of 15 on a quiet machine
TRIES = 5  # of a start that found one of its ports taken by somebody else meanwhile
TAKEN = "Address already in use"
CAUSES, CAUSE_LINES = ("Exception", "Error", "Caused by"), 4
OPEN = ["java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/java.nio"]
LOGBACK = '<configuration><root level="OFF"/></configuration>'


class PortTaken(jars.Unavailable):
    """A start failed because somebody else listens on one of its ports."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of Apache's programs: its command line but for the configuration, which lies in the folder, too."""

    name: str
    command: list[str]
    folder: Path
    settings: dict[str, object] = field(default_factory=dict)


@contextmanager
def apache_cluster(version: str, folder: Path, *, heap_mb: int = 512) -> Iterator[str]:
    """Run both in a folder and give the NameServer's address. Raises jars.Unavailable."""
    command = _command(version, folder, ("namesrv", "broker"))
    with ExitStack() as running:
        line = [*command, "-Xmx256m", "org.apache.rocketmq.namesrv.NamesrvStartup"]
        _, port = running.enter_context(started(Part("namesrv", line, folder)))
        namesrv = f"127.0.0.1:{port}"
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
    line = [*command, f"-Xmx{heap_mb}m", "org.apache.rocketmq.broker.BrokerStartup"]
    with started(Part("broker", line, folder, {**own, **places, "enablePropertyFilter": "true"})) as (process, _):
        # A first registration that a busy NameServer missed comes again after ten seconds; without it no topic is made.
        until(lambda: b'"apache"' in route(namesrv, "TBW102"), seconds=BOOT_S, what="Apache's broker is not registered")
        yield process


@contextmanager
def started(part: Part) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run a part on a port that it can have; give its process and that port. Raises jars.Unavailable."""
    process, port = _boot_somewhere(part)
    try:
        yield process, port
    finally:
        _end(process)


def _boot_somewhere(part: Part) -> tuple["subprocess.Popen[bytes]", int]:
    """Boot, with other ports for as long as those chosen were taken before the part had them."""
    taken: PortTaken | None = None
    for _ in range(TRIES):
        port = apache_port()
        settings = {"listenPort": port, **part.settings}
        (part.folder / f"{part.name}.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        try:
            return _boot(part), port
        except PortTaken as error:
            taken = error
    assert taken is not None
    raise taken


def _boot(part: Part) -> "subprocess.Popen[bytes]":
    """Return the process once it serves. Raises PortTaken, jars.Unavailable; then nothing of it is left."""
    said = part.folder / f"{part.name}.out"
    with said.open("wb") as out:
        command = [*part.command, "-c", f"{part.name}.conf"]
        process = subprocess.Popen(command, cwd=part.folder, stdout=out, stderr=out)
    serves, deadline = False, time.monotonic() + BOOT_S
    try:
        while not serves:
            ended = process.poll()  # before its words are read, so that none of them is missed
            words = said.read_text(errors="replace")
            serves = "boot success" in words
            if ended is not None:
                kind = PortTaken if TAKEN in words else jars.Unavailable
                raise kind(f"Apache's {part.name} ended with {ended} instead of starting: {cause(words)}")
            if time.monotonic() > deadline:
                raise jars.Unavailable(f"Apache's {part.name} does not serve after {BOOT_S} s: {cause(words)}")
            time.sleep(0.2)
    finally:
        if not serves:
            _end(process)
    return process


def cause(words: str) -> str:
    """Return what a Java program said of its failure: where exceptions begin, else its first lines."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    named = [line for line in lines if not line.startswith("at ") and any(each in line for each in CAUSES)]
    return " | ".join((named or lines)[:CAUSE_LINES]) or "it said nothing"


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
