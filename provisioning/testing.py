"""A box in a folder, a cable that can be slow, noisy and pulled, and a signed bundle to send through it."""

from __future__ import annotations

import json
import os
import random
import sys
import tty
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from provisioning.box import Box, DeviceActions
from provisioning.bundle import Manifest, build_bundle, describe_part, make_key, pack_app
from provisioning.device import serve_device
from provisioning.port import DescriptorLine

CONSOLE = b"[  42.000000] usb 1-1: new full-speed device \xc3\xbc\r\nlogin: "


def folder_box(root: Path, serial: str = "RBX-0007", *, model: str = "x1", hands: DeviceActions | None = None) -> Box:
    """Make a fresh box that lives in a folder and runs version 1.3.2 in slot a; activating a trial commits it."""
    factory = root / "var/lib/rocketbox-factory"
    factory.mkdir(parents=True)
    (factory / "serial").write_text(serial + "\n")
    (factory / "model").write_text(model + "\n")
    for name in ("opt/slots/a/lib", "etc/rocketbox", "usr/lib/rocketbox/keys"):
        (root / name).mkdir(parents=True)
    state = {"active": "a", "versions": {"a": "1.3.2"}, "committed": ["1.3.2"]}
    (root / "opt/slots/state.json").write_text(json.dumps(state))
    (root / "opt/appliance").symlink_to("slots/a")
    box = Box(root, hands)
    if hands is None:

        def activate(progress: Callable[[str, int, int], None]) -> None:
            slots = box.files.slots
            if slots.load().trial is not None:
                slots.boot()
                slots.commit()

        box.hands = DeviceActions(activate=activate)
    return box


def signed_bundle(folder: Path, box: Box | None = None, *, version: str = "1.4.0", size: int = 20_000) -> Path:
    """Build a bundle with one app of `size` random bytes, signed by a key the box trusts."""
    tree = folder / f"tree-{version}"
    (tree / "lib/python3.11/site-packages/appliance").mkdir(parents=True)
    (tree / "lib/python3.11/site-packages/appliance/__init__.py").write_text(f"version = {version!r}\n")
    blob = tree / "lib/blob.bin"
    blob.write_bytes(random.Random(size).randbytes(size))
    key = folder / "signing.pem"
    if not key.exists():
        make_key(key, folder / "current.pem")
    if box is not None:
        (box.files.trusted_keys / "current.pem").write_bytes((folder / "current.pem").read_bytes())
    archive = folder / f"app-{version}.tar.xz"
    files = pack_app(tree, archive)
    manifest = Manifest(
        version=version,
        models=("x1",),
        arch=os.uname().machine,
        python=f"{sys.version_info[0]}.{sys.version_info[1]}",
        created="2026-01-01T00:00:00Z",
        key_id="current",
        oldest="1.0.0",
        parts=(describe_part(archive, "app"),),
        files=files,
    )
    out = folder / f"rocketbox-{version}.rbx"
    build_bundle(out, manifest, [archive], key)
    return out


@dataclass(slots=True)
class Faults:
    """What a cable does to bytes: `flip` and `lose` are chances per byte, `baud` 0 is as fast as it goes."""

    seed: int = 1
    flip: float = 0.0
    lose: float = 0.0
    baud: int = 0
    console_every: int = 0  # bytes between two lines of a talkative kernel


class Cable:
    """Two pseudo terminals and a pump between them; `name` is what the bench opens, also after the cable was out."""

    def __init__(self, folder: Path, faults: Faults | None = None) -> None:
        self.name = str(folder / "ttyBOX")
        self.faults = faults or Faults()
        self.carried = 0
        self.cut_after = 1 << 62  # bytes from the bench until the cable is pulled
        self._random = random.Random(self.faults.seed)
        box_end, self._box_side = os.openpty()
        tty.setraw(self._box_side)
        self.box_line = DescriptorLine(self._box_side, "box", baud=115200)
        self._box_end = box_end
        self._bench_end = self._bench_side = -1
        os.set_blocking(box_end, False)
        self._plugged = trio.Event()
        self.plug()

    def plug(self) -> None:
        """Connect the bench's end under the same name."""
        self._bench_end, self._bench_side = os.openpty()
        tty.setraw(self._bench_side)
        os.set_blocking(self._bench_end, False)
        Path(self.name).unlink(missing_ok=True)
        Path(self.name).symlink_to(os.ttyname(self._bench_side))
        self._plugged.set()

    def pull(self) -> None:
        """Take the cable out: the bench's open port ends, its name is gone."""
        self._plugged = trio.Event()
        Path(self.name).unlink(missing_ok=True)
        for handle in (self._bench_end, self._bench_side):
            trio.lowlevel.notify_closing(handle)
            os.close(handle)

    async def run(self) -> None:
        """Carry bytes both ways until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._carry, True)
            nursery.start_soon(self._carry, False)

    async def _carry(self, from_bench: bool) -> None:
        while True:
            await self._plugged.wait()
            try:
                await self._carry_some(from_bench)
            except (OSError, trio.ClosedResourceError):
                await trio.sleep(0.01)

    async def _carry_some(self, from_bench: bool) -> None:
        source = self._bench_end if from_bench else self._box_end
        await trio.lowlevel.wait_readable(source)
        step = max(1, self.faults.baud // 200) if self.faults.baud else 4096
        data = os.read(source, step)
        if from_bench:
            self.carried += len(data)
            if self.carried >= self.cut_after:
                self.cut_after = 1 << 62
                self.pull()
                return
        if self.faults.baud:
            await trio.sleep(len(data) * 10 / self.faults.baud)
        rest = memoryview(self._spoil(data))
        sink = self._box_end if from_bench else self._bench_end
        while rest:
            try:
                rest = rest[os.write(sink, rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(sink)

    def _spoil(self, data: bytes) -> bytes:
        faults, out = self.faults, bytearray()
        if not (faults.flip or faults.lose or faults.console_every):
            return data
        for byte in data:
            if self._random.random() < faults.lose:
                continue
            if self._random.random() < faults.flip:
                byte ^= 1 << self._random.randrange(8)
            out.append(byte)
            if faults.console_every and self._random.random() < 1 / faults.console_every:
                out += CONSOLE
        return bytes(out)


async def run_box(cable: Cable, box: Box) -> None:
    """Serve a box at the far end of a cable until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cable.run)
        nursery.start_soon(serve_device, cable.box_line, box)
