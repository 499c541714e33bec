"""The box and the gateway as child processes: started as a user would, killed as a power cut would."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psutil

from tests.import_path import import_path
from tests.ports import apache_port, free_port

ROOT = Path(__file__).parent.parent.parent
READY_S = STOPPED_S = 120  # of one: guards against a hang, also on a machine that much else keeps busy


class Child:
    """A process of ours that prints one line beginning with `ready` once it serves."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command, self.log = command, log
        self.environment: dict[str, str] = {}  # beside that of the tests
        self.process: subprocess.Popen[str] | None = None
        self.ready_line = ""
        self.ready_s = 0.0

    def start(self) -> None:
        """Start and wait for the ready line. Raises RuntimeError with the end of the log when it does not come."""
        began = time.monotonic()
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": import_path(), **self.environment}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.command],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=environment,
            )
        self.ready_line = self._first_line()
        self.ready_s = time.monotonic() - began
        if not self.ready_line.startswith("ready"):
            self.kill()
            raise RuntimeError(f"{' '.join(self.command)} said {self.ready_line!r}, then:\n{self.log_tail()}")

    def _first_line(self) -> str:
        assert self.process is not None
        out = self.process.stdout
        assert out is not None
        watchdog = threading.Timer(READY_S, self.process.kill)
        watchdog.start()
        try:
            for line in out:
                if line.startswith("ready"):
                    return line.strip()
            return ""
        finally:
            watchdog.cancel()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL, as a power cut would: nothing gets a chance to finish."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; return the exit code. A process that does not end is killed and gives -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOPPED_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def resident_mb(self) -> float:
        """Return the resident memory of the process and its children, in MB."""
        process = psutil.Process(self.pid)
        return float(sum(p.memory_info().rss for p in [process, *process.children(recursive=True)])) / 1e6


class Box(Child):
    """`python -m appliance serve` on ports that stay the same over restarts."""

    def __init__(self, data: Path, *, uplink: str | None = None, config: str = "") -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data, self.namesrv_port, self.broker_port = data, free_port(), apache_port()  # for VIP and slaves, too
        command = ["-m", "appliance", "serve", "--data", str(data)]
        command += ["--namesrv-port", str(self.namesrv_port), "--broker-port", str(self.broker_port)]
        if uplink:
            command += ["--uplink", uplink]
        if config:
            (data.parent / f"{data.name}.toml").write_text(config)
            command += ["--config", str(data.parent / f"{data.name}.toml")]
        super().__init__(command, data.parent / f"{data.name}.log")

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def broker(self) -> str:
        return f"127.0.0.1:{self.broker_port}"


class Gateway(Child):
    """`python -m uplink_spark gateway` over one landing folder."""

    def __init__(self, landing: Path) -> None:
        self.landing, self.port = landing, free_port()
        command = ["-m", "uplink_spark", "gateway", "--landing", str(landing), "--listen", self.address]
        super().__init__(command, landing.parent / f"{landing.name}.log")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class Cluster(Protocol):
    """What has a NameServer."""

    @property
    def namesrv(self) -> str: ...


class Foreign:
    """A cluster that somebody else started, for example Apache's own: INTEROP_NAMESRV=HOST:PORT."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv


def until(condition: Any, *, seconds: float, what: str | Callable[[], str]) -> Any:
    """Return what the condition gives once it is true; fail with `what` in time. For other processes only."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)
