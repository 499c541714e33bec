"""One broker of Apache's as master or slave, that a test kills and starts again on the same folder."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.interop import apache
from tests.interop.apache import Part, started

VERSION = "4.9.7"


class ApacheBroker:
    """Apache's broker on a folder of its own; `settings` are lines of its broker.conf."""

    def __init__(self, folder: Path, namesrv: str, *, port: int = 0, heap_mb: int = 512, **settings: object) -> None:
        """port: the same at each start; 0: another one each time."""
        self.store = folder / "store"
        own: dict[str, object] = {"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "namesrvAddr": namesrv}
        own |= {"storePathRootDir": self.store, "storePathCommitLog": self.store / "commitlog"}
        own |= {"waitTimeMillsInSendQueue": 10_000, "enablePropertyFilter": "true"}
        command = apache._command(VERSION, folder, ("broker",))
        line = [*command, f"-Xmx{heap_mb}m", "org.apache.rocketmq.broker.BrokerStartup"]
        self._part = Part("broker", line, folder, {**own, **settings, **({"listenPort": port} if port else {})})
        self._running = ExitStack()
        self._fixed = self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. Raises jars.Unavailable."""
        self.process, port = self._running.enter_context(started(self._part))
        self.port = self._fixed or port

    def kill(self) -> None:
        """SIGKILL."""
        self._running.close()

    def stop(self) -> None:
        """SIGTERM: it flushes its files and says farewell."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)
        self._running.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def apache_namesrv(folder: Path) -> Iterator[str]:
    """Run Apache's NameServer and give its address. Raises jars.Unavailable."""
    command = apache._command(VERSION, folder, ("namesrv",))
    line = [*command, "-Xmx256m", "org.apache.rocketmq.namesrv.NamesrvStartup"]
    with started(Part("namesrv", line, folder)) as (_, port):
        yield f"127.0.0.1:{port}"
