"""A box as a process, watched from outside as operators watch it: status, doctor, metrics, page; on a disk of its own.

Where the test asks for it the process has mounts of its own: a small disk, or /run with the mark of a clock that was
set. Its files are seen from here through /proc/PID/root.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import trio
from prometheus_client.samples import Sample

from netstack.client import Message, Producer, ProducerOptions
from tests.appliance.alerting import samples
from tests.import_path import import_path
from tests.ports import free_port
from tests.waiting import until

TOP = Path(__file__).parents[2]
OWN = ["unshare", "--user", "--map-root-user", "--mount"]  # root over mounts of its own, no privilege is needed
ALLOWED = shutil.which("unshare") and not subprocess.run([*OWN, "true"], capture_output=True, check=False).returncode
NO_MOUNTS = "no user namespaces: sysctl kernel.unprivileged_userns_clone=1"
SMALL_DISK = 'mount -t tmpfs -o "size=$0" tmpfs "$1" && shift && exec "$@"'
CLOCK_SET = 'mount -t tmpfs tmpfs /run && touch /run/rocketbox-clock-set && exec "$@"'


class RealBox:
    """One `rocketbox serve` and what it says about itself."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], ports: dict[str, int]) -> None:
        self._folder, self._process, self._ports = folder, process, ports
        self.namesrv, self.page_port = f"127.0.0.1:{ports['namesrv']}", ports["page"]
        self.broker_port = ports["broker"]

    @property
    def data(self) -> Path:
        """The box's data folder as it lies in the mounts of the box."""
        return Path(f"/proc/{self._process.pid}/root{self._folder / 'data'}")

    @property
    def health(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.data / "run/health.json").read_text()))
        except FileNotFoundError:
            return {"state": "starting", "reasons": []}

    def told(self, key: str) -> dict[str, Any] | None:
        """Return the condition of this id, or id:subject, None while there is none."""
        rows = [one for one in self.health["reasons"] if key in (one["id"], one["id"].partition(":")[0])]
        return rows[0] if rows else None

    async def condition(self, key: str) -> str:
        """Return the sentence of a condition once the box tells it."""
        await until(lambda: self.told(key), 120)
        return str((self.told(key) or {})["text"])

    async def over(self, key: str) -> None:
        """Return once the box does not tell a condition any more."""
        await until(lambda: self.told(key) is None, 120)

    async def run(self, *words: str) -> tuple[int, str]:
        """Run a command of this box; return its exit code and what it printed."""
        command = [sys.executable, "-m", "appliance", *words, "--data", str(self.data)]
        said = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False, cwd=TOP, env=environment()
        )
        return said.returncode, said.stdout.decode() + said.stderr.decode()

    async def scrape(self) -> list[Sample]:
        return samples(await trio.to_thread.run_sync(self._get, "metrics", "/metrics"))

    async def page(self, path: str = "/") -> str:
        return await trio.to_thread.run_sync(self._get, "page", path)

    def _get(self, port: str, path: str) -> str:
        with urlopen(f"http://127.0.0.1:{self._ports[port]}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    async def fill(self, topic: str, count: int, body_bytes: int = 256 << 10) -> None:
        """Send messages, each of them acknowledged."""
        filling = bytes(body_bytes)
        options = ProducerOptions(compress_from=1 << 30, timeout_s=60)
        async with Producer("filler", self.namesrv, options=options) as producer:
            sent = [await producer.submit(Message(topic, b"%08d" % n + filling)) for n in range(count)]
            for each in sent:
                await each.wait()


@asynccontextmanager
async def real_box(folder: Path, toml: str = "", *, disk: str = "", clock_set: bool = False) -> AsyncIterator[RealBox]:
    """Run a box with page and metrics; disk: the size of a file system of its own; leaving stops it as systemd does."""
    ports = {name: free_port() for name in ("broker", "namesrv", "page", "metrics")}
    data, file = folder / "data", folder / "box.toml"
    data.mkdir(exist_ok=True)
    listen = f"[listen]\nbroker_port = {ports['broker']}\nnamesrv_port = {ports['namesrv']}\n"
    listen += "[box]\nname = 'box-17'\n[store]\nsegment_mib = 16\n"
    file.write_text(listen + f"[page]\nport = {ports['page']}\n[metrics]\nport = {ports['metrics']}\n" + toml)
    command = [sys.executable, "-m", "appliance", "serve", "--config", str(file), "--data", str(data)]
    if disk:
        command = [*OWN, "sh", "-c", SMALL_DISK, disk, str(data), *command]
    elif clock_set:
        command = [*OWN, "sh", "-c", CLOCK_SET, "sh", *command]
    process = started(command)
    try:
        assert process.stdout is not None
        ready = await trio.to_thread.run_sync(process.stdout.readline)
        assert ready.startswith("ready "), ready
        yield RealBox(folder, process, ports)
    finally:
        process.terminate()
        await trio.to_thread.run_sync(process.wait)
        assert process.stdout is not None
        process.stdout.close()


def started(command: list[str]) -> subprocess.Popen[str]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True, cwd=TOP, env=environment())


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": import_path()}
