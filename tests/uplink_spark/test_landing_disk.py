"""A landing zone on a real file system that fills up and turns read-only: no receipt, nothing lost, on by itself."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from storage_driver.record import Message
from tests.ports import free_port
from uplink_spark.box.shipper import Uplink
from uplink_spark.testing import landed_entries, landed_log
from uplink_spark.testing_site import HOST, box, shipped
from uplink_spark.wire.intervals import Intervals

TOP = Path(__file__).parents[2]
OWN = ["unshare", "--user", "--map-root-user", "--mount"]  # root over mounts of its own, no privilege is needed
ALLOWED = shutil.which("unshare") and not subprocess.run([*OWN, "true"], capture_output=True, check=False).returncode
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ALLOWED, reason="no user namespaces: sysctl kernel.unprivileged_userns_clone=1"),
]


class SmallDisk:
    """A gateway whose landing zone is a file system of its own."""

    def __init__(self, landing: Path, size: str) -> None:
        landing.mkdir()
        self._landing, self.port = landing, free_port()
        mounted = ["sh", "-c", 'mount -t tmpfs -o "$0" tmpfs "$1" && shift && exec "$@"', f"size={size}", str(landing)]
        command = [sys.executable, "-m", "uplink_spark", "gateway", "--landing", str(landing), "--linger-ms", "20"]
        where = ["--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen([*OWN, *mounted, *command, *where], stdout=subprocess.PIPE, text=True, cwd=TOP)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready listen=")

    @property
    def seen(self) -> Path:
        """The landing zone, as the gateway sees it."""
        return Path(f"/proc/{self.process.pid}/root{self._landing}")

    def _inside(self, *command: str) -> None:
        inside = ["nsenter", "--target", str(self.process.pid), "--user", "--mount", "--preserve-credentials"]
        subprocess.run([*inside, *command], check=True)

    def grow(self, size: str) -> None:
        self._inside("mount", "-o", f"remount,size={size}", str(self._landing))

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Where packs go; the kernel refuses it for a file system with files open for writing."""
        packs = str(self._landing / "pack")
        self._inside("mount", "--bind", packs, packs)
        self._inside("mount", "-o", "remount,bind,ro", packs)
        yield
        self._inside("umount", packs)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "landing", "8m")
    yield made
    made.end()


async def impatiently(uplink: Uplink, done: Callable[[], bool]) -> None:
    """Wait, and for no back-off."""
    with trio.fail_after(90):
        while not done():
            uplink.shipper.state.ship_now()
            await trio.sleep(0.1)


async def test_a_landing_zone_that_fills_up_and_turns_read_only_costs_time_alone(
    disk: SmallDisk, tmp_path: Path
) -> None:
    dice = random.Random(1)
    async with box(tmp_path / "store", disk.port) as (store, uplink):

        async def send(first: int, count: int) -> None:
            for number in range(first, first + count):
                store.put(Message("T", number % 4, dice.randbytes(200_000), b"", 0, 0, 1_700_000_000_000, HOST))
                await store.wait_committed(store.end)  # senders notice nothing

        def errors(code: str) -> int:
            return uplink.statistics().counts.errors[code]

        await send(0, 80)
        await impatiently(uplink, lambda: errors("full") > 0)
        assert not shipped(store, uplink)()
        await send(80, 5)
        held = Intervals((entry.start, entry.end) for entry in landed_entries(disk.seen, "box-17"))
        assert all(held.covers(*part) for part in uplink.shipper.state.ledger.receipted.log)
        disk.grow("100m")
        await impatiently(uplink, shipped(store, uplink))
        with disk.read_only():
            await send(85, 5)
            await impatiently(uplink, lambda: errors("internal") > 0)
            assert "Read-only file system" in uplink.statistics().last_error
            assert not shipped(store, uplink)()
        await impatiently(uplink, shipped(store, uplink))
        assert uplink.statistics().alarms == {}
    assert len(landed_log(disk.seen, "box-17")) == 90
    assert {entry.kind for entry in landed_entries(disk.seen, "box-17")} == {"log"}
