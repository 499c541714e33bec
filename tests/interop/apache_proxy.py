"""Apache's NameServer, and its broker inside its proxy (local mode): what gRPC clients do against it."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.interop import jars
from tests.interop.apache import BOOT_S, LOGBACK, OPEN
from tests.interop.box import until
from tests.interop.client import unique
from tests.interop.wire import make_group, make_topic, route
from tests.ports import apache_port, free_port

VERSION, STARTED = "5.5.0", b"startup successfully"
SMALL, LARGE = ("-Xmx768m",), ("-Xms2g", "-Xmx2g", "-Xmn1g")  # memory: enough for a test, and for a measurement
# ms, of 6, 60 and 3 s: an end that is noted after the time-out is asked for all the same
QUICK = {"transactionTimeOut": "1000", "transactionCheckInterval": "2000", "transactionOpBatchInterval": "100"}
# What a box always does; with the third a topic may take messages of every type.
OPEN_TYPES = {"enableTopicMessageTypeCheck": False}  # a topic takes every type, as a box's does
LIKE_A_BOX = {"recallMessageEnable": "true", "enablePropertyFilter": "true", "enableMixedMessageType": "true"}


def new_topic(broker: str, what: str, queues: int = 4, attributes: str = "") -> str:
    """Make a topic at a broker and return its name, which is new."""
    name = unique(what)
    make_topic(broker, name, queues, attributes)
    return name


def new_group(broker: str, what: str) -> str:
    """Make a consumer group at a broker and return its name, which is new."""
    name = unique(what)
    make_group(broker, name)
    return name


class ApacheProxy:
    """Both in a folder, which is made; `settings` are the broker's. Raises jars.Unavailable."""

    apache = True

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = QUICK,
        *,
        memory: tuple[str, ...] = SMALL,
        proxy: Mapping[str, object] = OPEN_TYPES,
    ) -> None:
        namesrv, broker, grpc = free_port(), apache_port(), free_port()
        self.namesrv, self.broker, self.endpoint = (f"127.0.0.1:{port}" for port in (namesrv, broker, grpc))
        self._folder, self._running = folder, dict[str, subprocess.Popen[bytes]]()
        _write_settings(folder, dict(settings), dict(proxy), (namesrv, broker, grpc))
        self._commands = _commands(folder, self.namesrv, memory)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values()]

    def start(self) -> None:
        """Start what does not run; return once clients are served."""
        said = self._folder / "proxy.out"
        said.unlink(missing_ok=True)
        for name, command in self._commands.items():
            if name not in self._running:
                with (self._folder / f"{name}.out").open("wb") as out:
                    self._running[name] = subprocess.Popen(command, cwd=self._folder, stdout=out, stderr=out)
        until(lambda: b'"apache"' in _route(self.namesrv), seconds=BOOT_S, what="Apache's broker is not registered")
        until(lambda: STARTED in said.read_bytes(), seconds=BOOT_S, what="Apache's proxy does not serve")

    def kill(self) -> None:
        """SIGKILL for broker and proxy; the NameServer lives on."""
        self._end("proxy")

    def close(self) -> None:
        """End all of it."""
        for name in list(self._running):
            self._end(name)

    def _end(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def topic(self, what: str, queues: int = 4) -> str:
        """Return the name of a new topic, for messages of every type as a box's."""
        return new_topic(self.broker, what, queues, "+message.type=MIXED")

    def group(self, what: str) -> str:
        """Return the name of a new consumer group; clients of one that is not there are refused."""
        return new_group(self.broker, what)


@contextmanager
def apache_proxy(
    folder: Path,
    settings: Mapping[str, str] = QUICK,
    *,
    memory: tuple[str, ...] = SMALL,
    proxy: Mapping[str, object] = OPEN_TYPES,
) -> Iterator[ApacheProxy]:
    """Run both in a folder. Raises jars.Unavailable."""
    made = ApacheProxy(folder, settings, memory=memory, proxy=proxy)
    try:
        made.start()
        yield made
    finally:
        made.close()


def _write_settings(
    folder: Path, settings: dict[str, str], of_proxy: dict[str, object], ports: tuple[int, int, int]
) -> None:
    namesrv, broker, grpc = ports
    own = {"brokerClusterName": "DefaultCluster", "brokerName": "apache", "brokerIP1": "127.0.0.1"}
    own |= {"listenPort": str(broker), "flushDiskType": "SYNC_FLUSH", "autoCreateTopicEnable": "true"}
    own |= {"namesrvAddr": f"127.0.0.1:{namesrv}", "storePathRootDir": f"{folder}/store", **LIKE_A_BOX}
    own |= settings
    proxy: dict[str, object] = {"rocketMQClusterName": "DefaultCluster", "proxyMode": "local", "grpcServerPort": grpc}
    proxy |= {"remotingListenPort": free_port(), "namesrvAddr": f"127.0.0.1:{namesrv}", **of_proxy}
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
