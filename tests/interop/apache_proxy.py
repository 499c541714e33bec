"""Apache's NameServer, and its broker inside its proxy (local mode): what gRPC clients do against it."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop import jars
from tests.interop.apache import BOOT_S, LOGBACK, OPEN
from tests.interop.box import until
from tests.interop.client import unique
from tests.interop.wire import make_topic, route
from tests.ports import apache_port, free_port

VERSION, STARTED = "5.5.0", b"startup successfully"
SMALL, LARGE = ("-Xmx768m",), ("-Xms2g", "-Xmx2g", "-Xmn1g")  # memory: enough for a test, and for a measurement
QUICK = {"transactionTimeOut": "1000", "transactionCheckInterval": "2000"}  # ms, of 6 and 60 s


def new_topic(broker: str, what: str, queues: int = 4) -> str:
    """Make a topic at a broker and return its name, which is new."""
    name = unique(what)
    make_topic(broker, name, queues)
    return name


@dataclass(frozen=True, slots=True)
class ApacheProxy:
    """Where its parts listen, and their processes."""

    namesrv: str
    broker: str
    endpoint: str
    pids: list[int]

    def topic(self, what: str, queues: int = 4) -> str:
        """Return the name of a new topic."""
        return new_topic(self.broker, what, queues)


@contextmanager
def apache_proxy(
    folder: Path, settings: Mapping[str, str] = QUICK, *, memory: tuple[str, ...] = SMALL
) -> Iterator[ApacheProxy]:
    """Run both in a folder, which is made; `settings` are the broker's. Raises jars.Unavailable."""
    namesrv, broker, grpc = free_port(), apache_port(), free_port()
    _write_settings(folder, dict(settings), namesrv, broker, grpc)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in _commands(folder, f"127.0.0.1:{namesrv}", memory).items():
            with (folder / f"{name}.out").open("wb") as out:
                running.append(subprocess.Popen(command, cwd=folder, stdout=out, stderr=out))
        where = f"127.0.0.1:{namesrv}"
        until(lambda: b'"apache"' in _route(where), seconds=BOOT_S, what="Apache's broker is not registered")
        said = folder / "proxy.out"
        until(
            lambda: b"startup successfully" in said.read_bytes(), seconds=BOOT_S, what="Apache's proxy does not serve"
        )
        yield ApacheProxy(where, f"127.0.0.1:{broker}", f"127.0.0.1:{grpc}", [each.pid for each in running])
    finally:
        for process in running:
            process.kill()
            process.wait()


def _write_settings(folder: Path, settings: dict[str, str], namesrv: int, broker: int, grpc: int) -> None:
    own = {"brokerClusterName": "DefaultCluster", "brokerName": "apache", "brokerIP1": "127.0.0.1"}
    own |= {"listenPort": str(broker), "flushDiskType": "SYNC_FLUSH", "autoCreateTopicEnable": "true"}
    own |= {"namesrvAddr": f"127.0.0.1:{namesrv}", "storePathRootDir": f"{folder}/store", **settings}
    proxy = {"rocketMQClusterName": "DefaultCluster", "proxyMode": "local", "grpcServerPort": grpc}
    proxy |= {"remotingListenPort": free_port(), "namesrvAddr": f"127.0.0.1:{namesrv}"}
    proxy["enableTopicMessageTypeCheck"] = False  # a topic takes every type, as a box's does
    (folder / "conf").mkdir(parents=True)
    for part in ("namesrv", "broker", "proxy"):
        (folder / "conf" / f"rmq.{part}.logback.xml").write_text(LOGBACK)
    (folder / "n.conf").write_text(f"listenPort={namesrv}\n")
    (folder / "b.conf").write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    (folder / "p.json").write_text(json.dumps(proxy))


def _commands(folder: Path, namesrv: str, memory: tuple[str, ...]) -> dict[str, list[str]]:
    """Return what runs each part, in the order in which they start."""
    opened = [f"--add-{how}={name}=ALL-UNNAMED" for name in OPEN for how in ("opens", "exports")]
    java = [*jars.java_command(), *opened, f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"]
    classes = {part: ":".join(map(str, jars.fetch(VERSION, f"rocketmq-{part}"))) for part in ("namesrv", "proxy")}
    first = [*java, "-Xmx256m", "-cp", classes["namesrv"], "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", "n.conf"]
    second = [*java, *memory, "-cp", classes["proxy"], "org.apache.rocketmq.proxy.ProxyStartup"]
    return {"namesrv": first, "proxy": [*second, "-pm", "local", "-bc", "b.conf", "-pc", "p.json", "-n", namesrv]}


def _route(namesrv: str) -> bytes:
    try:
        return route(namesrv, "TBW102")
    except OSError:
        return b""
