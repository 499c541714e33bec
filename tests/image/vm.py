"""One box in QEMU: firmware, a disk image, two serial lines, ports on a loopback address of its own, a watchdog card.

Emulated by QEMU's own translator, on one processor: with two of them QEMU 7.2 breaks the guest kernel. The guest's
clock counts instructions, 500 million a second, about those of a small board: its timers fit its speed however busy
the host is, and guest seconds mean the same everywhere. A guest that resets ends the process and `next_boot` starts
another, which is faster than a warm reset. What waits by spinning is dear, ten seconds of the host for one of the
guest: the firmware looks 0.75 s for a TPM, which is a third of the time until the kernel starts.
"""

import json
import os
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ADDRESS = "127.0.66.1"  # 9876 and 10911 there are the box's own ports, and in nobody's way
SERIAL, SHELL = 7701, 7702
PATIENCE_S = 1800.0  # for each wait: on a machine that has other things to do a boot takes ten minutes, alone about two
KNOCK_S = 10.0  # a knock that comes too early is echoed, kept and answered later, and each costs the guest a second


class Board(NamedTuple):
    """What differs between the emulated machines."""

    program: str
    words: tuple[str, ...]
    code: Path
    memory: Path  # of the firmware, a template
    lines: tuple[tuple[str, str], ...]  # for console and shell: an option and its value, to which `chardev` is added
    packages: str


BOARDS = {
    "amd64": Board(
        "qemu-system-x86_64",
        # Firmware and kernel ask what is off patiently. AMD: a kernel on an Intel model flushes its TLB at each call.
        ("q35,sata=off,i8042=off,smbus=off", "-cpu", "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt", "-vga", "none"),
        Path("/usr/share/OVMF/OVMF_CODE_4M.fd"),
        Path("/usr/share/OVMF/OVMF_VARS_4M.fd"),
        (("-serial", "chardev:"), ("-serial", "chardev:")),
        "qemu-system-x86 ovmf",
    ),
    "arm64": Board(  # a processor as in the Raspberry Pi 4; `virt` has one serial line, so the shell's is a PCI card
        "qemu-system-aarch64",
        ("virt,gic-version=3", "-cpu", "cortex-a72"),
        Path("/usr/share/AAVMF/AAVMF_CODE.fd"),
        Path("/usr/share/AAVMF/AAVMF_VARS.fd"),
        (("-serial", "chardev:"), ("-device", "pci-serial,chardev=")),
        "qemu-system-arm qemu-efi-aarch64",
    ),
}


class GaveUp(Exception):
    """Something did not happen in time; the text says what."""


class Monitor:
    """QEMU's control socket: commands, and the events it tells of."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        self._next(10)
        self.ask("qmp_capabilities")

    def ask(self, name: str, **arguments: str) -> None:
        """Run a command. Raises GaveUp."""
        self._socket.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        while "return" not in (answer := self._next(30) or {"error": "no answer"}):
            if "error" in answer:
                raise GaveUp(f"{name}: {answer}")

    def wait(self, name: str, seconds: float) -> dict[str, Any]:
        """Return the next event of this name. Raises GaveUp; EOFError when the process has ended."""
        end = time.monotonic() + seconds
        while True:
            for event in self.events:
                if event["event"] == name:
                    self.events.remove(event)
                    return event
            if self._next(max(0.0, end - time.monotonic())) is None and time.monotonic() >= end:
                raise GaveUp(f"no {name} within {seconds} s")

    def drain(self) -> None:
        """Read whatever it still had to tell."""
        try:
            while self._next(0) is not None:
                pass
        except EOFError:
            return

    def _next(self, seconds: float) -> dict[str, Any] | None:
        while b"\n" not in self._buffer:
            if not select.select([self._socket], [], [], seconds)[0]:
                return None
            received = self._socket.recv(65536)
            if not received:
                raise EOFError
            self._buffer += received
        line, self._buffer = self._buffer.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        if "event" in found:
            self.events.append(found)
        return found


class Vm:
    """A machine whose disk is `folder/disk.img`; the firmware's memory lies beside it."""

    def __init__(self, folder: Path, *, arch: str = "amd64", stick: Path | None = None) -> None:
        self.folder, self.board, self.stick, self.boots = folder, BOARDS[arch], stick, 0
        self._console_at = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.monitor: Monitor

    def start(self) -> None:
        """Switch it on."""
        path = self.folder / "monitor"
        self._console_at = len(self.console())
        path.unlink(missing_ok=True)
        with (self.folder / "qemu.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._words(path), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.boots += 1
        end = time.monotonic() + 20
        while True:
            try:
                self.monitor = Monitor(path)
                return
            except (FileNotFoundError, ConnectionRefusedError):
                if self._process.poll() is not None or time.monotonic() > end:
                    raise GaveUp((self.folder / "qemu.log").read_text()[-800:]) from None
                time.sleep(0.05)

    def _words(self, monitor: Path) -> list[str]:
        board, memory = self.board, self.folder / "firmware.fd"
        if not memory.exists():
            shutil.copyfile(board.memory, memory)
        machine, *others = board.words
        words = [
            "nice",
            "-n",
            "4",
            board.program,
            "-machine",
            f"{machine},accel={os.environ.get('ACCEL', 'tcg')}",
            *others,
        ]
        words += ["-smp", "1", "-icount", "shift=1", "-rtc", "base=utc,clock=vm"]
        words += ["-m", "768", "-display", "none", "-no-user-config", "-nodefaults"]
        words += ["-device", "virtio-rng-pci", "-qmp", f"unix:{monitor},server=on,wait=off"]
        for port, name, (option, value) in zip((SERIAL, SHELL), ("console", "shell"), board.lines, strict=True):
            line = f"socket,id={name},host={ADDRESS},port={port},server=on,wait=off"
            words += ["-chardev", f"{line},logfile={self.folder / name}.log,logappend=on", option, f"{value}{name}"]
        words += ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={board.code}"]
        words += ["-drive", f"if=pflash,format=raw,unit=1,file={memory}"]
        words += ["-drive", f"if=none,id=disk,format=raw,cache=none,file={self.folder / 'disk.img'}"]
        words += ["-device", "virtio-blk-pci,drive=disk,bootindex=0"]
        if self.stick:
            words += ["-drive", f"if=none,id=stick,format=raw,readonly=on,file={self.stick}"]
            words += ["-device", "virtio-blk-pci,drive=stick"]
        forwards = ",".join(f"hostfwd=tcp:{ADDRESS}:{port}-:{port}" for port in (9876, 10911))
        words += ["-netdev", f"user,id=net,{forwards}", "-device", "virtio-net-pci,netdev=net,romfile="]
        return [*words, "-device", "i6300esb", "-action", "watchdog=reset", "-action", "reboot=shutdown"]

    @contextmanager
    def warm_reset(self) -> Iterator[None]:
        """A reset meanwhile stays inside the process, and what cards remember survives."""
        self.monitor.ask("set-action", reboot="reset")
        yield
        self.monitor.ask("set-action", reboot="shutdown")

    def wait_kernel(self, seconds: float = PATIENCE_S) -> None:
        """Wait until the firmware has let go of the serial line: what is typed before that opens its menu."""
        end = time.monotonic() + seconds
        while "starts from rocketbox-" not in self.console()[self._console_at :]:
            if time.monotonic() > end:
                raise GaveUp(f"no kernel within {seconds} s: {self.console()[self._console_at :][-300:]!r}")
            time.sleep(0.2)

    def cut_power(self) -> None:
        """SIGKILL: what the guest has not handed to its disk is gone."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def next_boot(self, seconds: float = PATIENCE_S) -> None:
        """Wait until the guest has reset itself, then switch it on again."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise GaveUp(f"no reset within {seconds} s: {self.console()[-600:]}") from None
        self.start()

    def console(self) -> str:
        path = self.folder / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def shell(self, command: str, seconds: float = PATIENCE_S) -> str:
        """Run a command as root on the second serial line, return what it printed. Raises GaveUp."""
        self.wait_kernel()
        with Shell(seconds) as shell:
            return shell.run(command)


class Shell:
    """A root shell on a serial line: whatever the terminal echoes, only what lies between two marks counts."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._buffer = b""
        try:
            self._socket = socket.create_connection((ADDRESS, SHELL), timeout=5)
        except OSError as exc:
            raise GaveUp(f"the machine is off: {exc}") from exc

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def run(self, command: str) -> str:
        mark = f"{time.monotonic_ns():x}"
        self._wait_prompt()
        self._socket.sendall(f"echo '<'{mark}; ({command}) 2>&1; echo '>'{mark} $?\n".encode())
        while f">{mark} ".encode() not in self._buffer or not self._buffer.endswith(b"\n"):
            self._read(f"the end of `{command}`")
            if f">{mark} ".encode() in self._buffer.partition(f"<{mark}\r\n".encode())[2]:
                break
        text = self._buffer.decode(errors="replace").replace("\r", "")
        return text.partition(f"<{mark}\n")[2].partition(f">{mark} ")[0]

    def _wait_prompt(self) -> None:
        """Knock until a shell answers."""
        knock = f"{time.monotonic_ns():x}"
        while f"<{knock}".encode() not in self._buffer:
            self._socket.sendall(f"echo '<'{knock}\n".encode())
            until = time.monotonic() + KNOCK_S
            while time.monotonic() < until and f"<{knock}".encode() not in self._buffer:
                self._read("a shell", 1.0)

    def _read(self, what: str, seconds: float = 5.0) -> None:
        if time.monotonic() > self._end:
            raise GaveUp(f"{what} did not come; the line says {self._buffer[-600:]!r}")
        if select.select([self._socket], [], [], seconds)[0]:
            try:
                received = self._socket.recv(65536)
            except ConnectionError:
                received = b""
            if not received:
                raise GaveUp(f"the machine is off, {what} did not come; the line says {self._buffer[-600:]!r}")
            self._buffer += received
