"""The image from the flash to the frozen kernel: `python -m tests.image.run IMAGES [--cuts 20] [--only STEP]`.

IMAGES is what `make test-image` builds: 1.0.0 good, 1.1.0 good, 1.2.0 whose self-test fails, 1.3.0 that panics. Prints
every duration; once the steps wanted have passed their rows go into docs/box.md. Exit code 1 at the first failure.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import trio

from tests.image.load import Sent, read_all, send_until, wait_answer
from tests.image.vm import ADDRESS, BOARDS, PATIENCE_S, SERIAL, GaveUp, Vm

TOP = Path(__file__).resolve().parents[2]
DOC = TOP / "docs/box.md"
MARKS = {"amd64": "image", "arm64": "image-arm64"}  # of the tables in DOC
CONFIG = f"""[listen]
host = "0.0.0.0"
[[advertise.rules]]
from = "10.0.2.0/24"
address = "{ADDRESS}"
"""
DISK_BYTES = 3 << 30
# Not 30 s, nor the two minutes of an image with a root shell: for a kernel that spins the host needs twelve times that.
SHORT_WATCHDOG = (
    "busctl set-property org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager "
    "RuntimeWatchdogUSec t 10000000"
)
# A second of the guest lasts as long as the host needs for 500 million instructions, the bench's is one of the host's.
PATIENT_BENCH = """
import sys
import provisioning.host as host
from appliance.__main__ import main
host.REPLY_S *= 20
host.IDENTIFY_S *= 20
sys.exit(main(sys.argv[1:]))
"""


class Story:
    """One box's life, step by step; `rows` are what and how long."""

    def __init__(self, images: Path, folder: Path, arguments: argparse.Namespace) -> None:
        self.images, self.folder, self.cuts, self.suffix = images, folder, arguments.cuts, SUFFIXES[arguments.arch]
        self.random = random.Random(arguments.seed)
        self.rows: list[tuple[str, str]] = []
        self.vm = Vm(folder, arch=arguments.arch, stick=folder / "stick.img")

    def note(self, what: str, result: str) -> None:
        self.rows.append((what, result))
        print(f"{time.strftime('%H:%M:%S')}  {what}: {result}", flush=True)

    # --- steps

    def flash(self) -> None:
        """Write the disk as a technician does, then make it as large as a disk is."""
        disk = self.folder / "disk.img"
        for name in ("disk.img", "firmware.fd", "console.log", "shell.log"):
            (self.folder / name).unlink(missing_ok=True)
        began = time.monotonic()
        image = self.images / f"rocketbox-1.0.0{self.suffix}.img.zst"
        said = self.bench("flash", "disk", str(image), "--to", str(disk), "--serial", "RBX-0001", "--model", "x1")
        self.note("flash", f"{time.monotonic() - began:.0f} s; {said.splitlines()[-1].split(None, 1)[1]}")
        os.truncate(disk, DISK_BYTES)

    def first_boot(self) -> None:
        self.vm.start()
        began = time.monotonic()
        self.vm.wait_kernel()
        kernel = time.monotonic() - began
        self.bench_until_heard("provision", "--port", f"socket://{ADDRESS}:{SERIAL}", "--dry-run", "--yes")
        wall = time.monotonic() - began
        text = f"{self.ready_s():.0f} s guest; {wall:.0f} s wall, {kernel:.0f} s of them firmware and kernel"
        self.note("first boot → the product is ready, the box answers on its serial line", text)

    def provision(self) -> None:
        (self.folder / "wanted.toml").write_text(CONFIG)
        words = ["provision", "--port", f"socket://{ADDRESS}:{SERIAL}", "--yes", "--name", "press-001"]
        began = time.monotonic()
        words += ["--config", str(self.folder / "wanted.toml"), "--receipts", str(self.folder)]
        said = self.bench_until_heard(*words)
        assert "RBX-0001" in said, said
        assert "self-test ok" in said, said
        self.note("provisioned over the serial line, self-test passed", f"{time.monotonic() - began:.0f} s")

    def java(self) -> None:
        trio.run(wait_answer, PATIENCE_S)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tests.image.java", "50"],
            cwd=TOP,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.note("official Java client 4.9.7: sent and received back", f"50 of 50, {time.monotonic() - began:.0f} s")

    def update(self) -> None:
        began = time.monotonic()
        self.install("1.1.0")
        installed = time.monotonic() - began
        self.vm.next_boot()
        booted = time.monotonic()
        self.wait_state(lambda state: state["running"] == "1.1.0" and state["trial"] is None)
        text = f"installed in {installed:.0f} s, kept {time.monotonic() - booted:.0f} s after power on"
        self.note("update to a good image", text)

    def bad_update(self) -> None:
        self.go_back("1.2.0", "update to an image whose self-test fails")

    def panicking_update(self) -> None:
        self.go_back("1.3.0", "update to an image whose kernel panics")

    def cut(self) -> None:
        """Cut the power under load, again and again; read everything back after each start."""
        sent, starts = Sent(), []
        trio.run(wait_answer, PATIENCE_S)
        for count in range(self.cuts):
            trio.run(self.load_and_cut, sent, count)
            self.vm.start()
            seconds = trio.run(wait_answer, PATIENCE_S)
            starts.append((self.ready_s(), seconds))
            found = trio.run(read_all, PATIENCE_S)
            lost = sent.acknowledged - found
            print(
                f"  cut {count + 1}: {len(sent.acknowledged)} acknowledged, {len(found)} found, {len(lost)} lost, "
                f"ready {starts[-1][0]:.0f} s after the kernel's start, answers after {seconds:.0f} s",
                flush=True,
            )
            assert not lost, f"lost: {sorted(lost)[:20]}"
        self.note("power cuts under load", f"{self.cuts}; {len(sent.acknowledged)} acknowledged, 0 lost")
        ready_s, answer_s = zip(*starts, strict=True)
        text = f"{median(ready_s):.0f} s guest, {median(answer_s):.0f} s wall (median); "
        self.note("start after a cut → serves", f"{text}{max(ready_s):.0f} and {max(answer_s):.0f} s (longest)")

    async def load_and_cut(self, sent: Sent, count: int) -> None:
        stop, sent.enough = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_until, stop, sent, count * 1_000_000)
            with trio.fail_after(PATIENCE_S):
                await sent.enough.wait()
            await trio.sleep(self.random.uniform(0.2, 4.0))
            self.vm.cut_power()
            stop.set()

    def watchdog(self) -> None:
        """Freeze the kernel: no panic reboot, no timer, nobody home; only the card is left."""
        trio.run(wait_answer, PATIENCE_S)
        assert "i6300" in self.vm.shell("cat /sys/class/watchdog/watchdog0/identity"), "no watchdog card"
        said = self.vm.shell(f"{SHORT_WATCHDOG}; cat /sys/class/watchdog/watchdog0/timeout")
        assert said.split() == ["10"], said
        with self.vm.warm_reset():
            self.vm.monitor.drain()
            self.vm.monitor.events.clear()
            self.vm.shell("sysctl -q kernel.panic=0 kernel.sysrq=1; sync; (sleep 2; echo c >/proc/sysrq-trigger) &")
            frozen = time.monotonic()
            self.vm.monitor.wait("WATCHDOG", PATIENCE_S)
            reset = time.monotonic() - frozen
        trio.run(wait_answer, 2 * PATIENCE_S)
        boots = self.vm.shell("tail -n 1 /var/lib/rocketbox/watchdog/boots.jsonl")
        reason = json.loads(boots.strip().splitlines()[-1])["reason"]
        assert reason == "watchdog", boots
        what = f"`RuntimeWatchdogSec=10`; {reset:.0f} s wall, {time.monotonic() - frozen - reset:.0f} s until it serves"
        self.note("kernel frozen → reset by the watchdog card", f"{what}; reset reason `watchdog`")

    # --- parts

    def go_back(self, version: str, what: str) -> None:
        began = time.monotonic()
        self.install(version)
        boots = self.vm.boots
        self.vm.next_boot()
        while True:  # until the box stays up and is the old one
            try:
                state = self.state(PATIENCE_S)
                if state["running"] == "1.1.0" and version in state.get("bad", []):
                    break
            except GaveUp:
                pass
            self.vm.next_boot()
        trio.run(wait_answer, PATIENCE_S)
        text = f"1.1.0 serves again after {self.vm.boots - boots} boots, {time.monotonic() - began:.0f} s"
        self.note(what, f"automatic rollback: {text}")
        refused = self.vm.shell(
            f"mount -o ro /dev/vdb /mnt; rocketbox update /mnt/{version}.rbx; umount /mnt", PATIENCE_S
        )
        assert "rolled back on this box" in refused, refused

    def ready_s(self) -> float:
        """Return when the product was ready, by the guest's own clock, which counts instructions: kernel start is 0."""
        ask = "t=$(systemctl show -P ActiveEnterTimestampMonotonic rocketbox)"
        return int(self.vm.shell(f"{ask}; while [ $t = 0 ]; do sleep 2; {ask}; done; echo $t")) / 1e6

    def install(self, version: str) -> None:
        """Update from the stick, with the reboot; it may come before the shell has said that the command is done."""
        command = f"mount -o ro /dev/vdb /mnt && rocketbox update /mnt/{version}.rbx --reboot; umount /mnt"
        try:
            said = self.vm.shell(command, PATIENCE_S)
        except GaveUp as exc:
            said = str(exc)
        assert f"image {version} is in root" in said, said

    def state(self, seconds: float) -> dict[str, Any]:
        return dict(json.loads(self.vm.shell("python3 -I /usr/lib/rocketbox/image.py status", seconds)))

    def wait_state(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not wanted(state := self.state(PATIENCE_S)):
            if time.monotonic() > end:
                raise GaveUp(f"the image's state stays {state}")
            time.sleep(2)

    def bench_until_heard(self, *words: str) -> str:
        """Run a command of the bench again while the box is too busy, or not far enough, to say who it is."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.bench(*words)
            except GaveUp as exc:
                if "E101" not in str(exc) or time.monotonic() > end:
                    raise
            time.sleep(5)

    def bench(self, *words: str) -> str:
        """Run a command of the bench. Raises GaveUp with what it said."""
        done = subprocess.run(
            [sys.executable, "-c", PATIENT_BENCH, *words],
            cwd=TOP,
            env={**os.environ, "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise GaveUp(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout


STEPS = ("flash", "first_boot", "provision", "java", "update", "bad_update", "panicking_update", "cut", "watchdog")
SUFFIXES = {"amd64": "", "arm64": "-arm64"}  # of file names


def missing(arch: str) -> list[str]:
    """Return the Debian packages that are not installed here."""
    board = BOARDS[arch]
    lacks = [] if shutil.which(board.program) and board.code.exists() else [board.packages]
    return lacks if shutil.which("mcopy") else [*lacks, "mtools"]


def make_stick(folder: Path, images: Path, suffix: str) -> None:
    """Put the three bundles onto a FAT disk."""
    stick = folder / "stick.img"
    stick.unlink(missing_ok=True)
    found = [images / f"rocketbox-{version}{suffix}-image.rbx" for version in ("1.1.0", "1.2.0", "1.3.0")]
    size = sum(path.stat().st_size for path in found if path.exists()) + (48 << 20)
    subprocess.run(["/usr/sbin/mkfs.vfat", "-C", "-F", "32", stick, str(size >> 10)], check=True, stdout=-3)
    for path in found:
        if path.exists():
            name = path.name.removeprefix("rocketbox-").replace(f"{suffix}-image", "")
            subprocess.run(["mcopy", "-i", stick, path, f"::/{name}"], check=True)


def write_table(rows: list[tuple[str, str]], arch: str, *, only_some: bool) -> None:
    """Put the rows into docs/box.md; when only some steps ran those of the others stay."""
    begin, end = (f"<!-- {MARKS[arch]}: {place} -->\n" for place in ("begin", "end"))
    before, _, rest = DOC.read_text().partition(begin)
    old, _, after = rest.partition(end)
    lines = [line.strip("| ").partition(" | ") for line in old.splitlines()[2:] if only_some]
    found = {what: result for what, _, result in lines} | dict(rows)
    table = "".join(f"| {what} | {result} |\n" for what, result in found.items())
    DOC.write_text(f"{before}{begin}| step | result |\n| --- | --- |\n{table}{end}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.image.run", description=__doc__)
    parser.add_argument("images", type=Path)
    parser.add_argument("--arch", choices=BOARDS, default="amd64")
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=STEPS, help="these steps on the disk of an earlier run")
    arguments = parser.parse_args()
    if lacks := missing(arguments.arch):
        print(f"tests.image: as root: apt-get install {' '.join(lacks)}", file=sys.stderr)
        return 2
    folder = arguments.images / "vm"
    folder.mkdir(exist_ok=True)
    make_stick(folder, arguments.images, SUFFIXES[arguments.arch])
    story = Story(arguments.images, folder, arguments)
    steps = arguments.only or STEPS
    began = time.monotonic()
    try:
        if "first_boot" not in steps and "flash" not in steps:
            story.vm.start()
        for step in steps:
            getattr(story, step)()
            if arguments.only:
                write_table(story.rows, arguments.arch, only_some=True)
    except (GaveUp, AssertionError, trio.TooSlowError) as exc:
        print(f"failed at {step}: {exc!r}\nconsole: {story.vm.console()[-1500:]}")
        return 1
    finally:
        story.vm.cut_power()
    if not arguments.only:
        story.note("all of it", f"{(time.monotonic() - began) / 60:.0f} min, seed {arguments.seed}")
        write_table(story.rows, arguments.arch, only_some=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
