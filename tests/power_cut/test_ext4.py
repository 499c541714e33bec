"""Power cuts under a real ext4: the block device's writes and flushes are recorded, any cut is replayed and mounted."""

import gc
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from storage_driver.config import StoreConfig
from storage_driver.errors import StorageError
from storage_driver.files.disk import RealDisk
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.index.index_file import IndexSize
from storage_driver.reader import read_record
from storage_driver.record import Message, MessageQueue, decode_record, encode_host
from storage_driver.recovery.opening import open_folder
from storage_driver.store import open_store

HOST = encode_host("127.0.0.1", 10911)
STATES = 15
Event = tuple[bytes, int, bytes]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for loop devices and mounts"),
    pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="needs /dev/fuse"),
    pytest.mark.skipif(not shutil.which("fusermount3"), reason="no fusermount3: apt-get install fuse3"),
    pytest.mark.skipif(not shutil.which("mkfs.ext4"), reason="no mkfs.ext4: apt-get install e2fsprogs"),
]


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root,
        HOST,
        segment_bytes=128 * 1024,
        max_message_bytes=32 * 1024,
        queue_file_entries=100,
        index_size=IndexSize(50, 200),
        position_every_s=0.05,
        flush_every_s=0.02,
    )


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def recorded_ext4(work: Path) -> Iterator[Path]:
    """Mount an ext4 whose device is recorded, yield the mount; `base.img` is the device before, `log` what was done."""
    image, base, log = work / "disk.img", work / "base.img", work / "log"
    fuse, mount = work / "fuse", work / "mount"
    fuse.mkdir()
    mount.mkdir()
    run("truncate", "-s", "192M", str(image))
    run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image))
    run("cp", "--sparse=always", str(image), str(base))
    script = Path(__file__).with_name("block_recorder.py")
    recorder = subprocess.Popen(
        [sys.executable, str(script), str(fuse), str(image), str(log)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    loop = ""
    try:
        for _ in range(100):
            if (fuse / "disk").exists():
                break
            time.sleep(0.1)
        else:
            pytest.skip("FUSE did not mount here")
        try:
            loop = run("losetup", "-f", "--show", str(fuse / "disk"))
            run("mount", "-o", "noatime", loop, str(mount))
        except subprocess.CalledProcessError as exc:
            pytest.skip(f"no loop device here: {exc.stderr}")
        yield mount
    finally:
        for command in (["umount", str(mount)], ["losetup", "-d", loop], ["fusermount3", "-u", str(fuse)]):
            for _ in range(25):  # a loop device lets go a moment after it was told to
                if subprocess.run(command, check=False, capture_output=True, timeout=120).returncode == 0:
                    break
                time.sleep(0.2)
        try:
            recorder.wait(60)
        except subprocess.TimeoutExpired:  # a file system whose journal failed may hold on to its device
            subprocess.run(["umount", "-l", str(mount)], check=False, capture_output=True, timeout=120)
            recorder.kill()
            recorder.wait()
            subprocess.run(["fusermount3", "-uz", str(fuse)], check=False, capture_output=True, timeout=120)


@pytest.mark.parametrize("step", [1, 64])
def test_one_bad_sector_costs_its_own_block_alone(tmp_path: Path, step: int) -> None:
    """The page cache gives back nothing of a page of 16 KiB or more that has one, and reads ahead make such pages."""
    with recorded_ext4(tmp_path) as mount:
        content, path = random.Random(7).randbytes(256 << 10), mount / "file"
        path.write_bytes(content)
        file = RealDisk().open(path)
        file.sync()
        at = (tmp_path / "disk.img").read_bytes().find(content[20 << 12 : 21 << 12])
        (tmp_path / "fuse" / "mark").write_bytes(b"bad %d %d" % (at + 1024, at + 1536))
        file.advise(0, 0, os.POSIX_FADV_DONTNEED)
        zeroing, given = ZeroingDisk(RealDisk(), mount), bytearray()
        for block in range(0, 64, step):
            given += zeroing.open(path).read(step << 12, block << 12)
            if block // step == 20 // step:
                with pytest.raises(OSError, match="Input/output error"):
                    file.read(step << 12, block << 12)
            else:
                assert file.read(step << 12, block << 12) == content[block << 12 : (block + step) << 12]
        assert file.read(20 << 12, 0) + bytes(4096) + file.read(1 << 20, 21 << 12) == given
        assert given == content[: 20 << 12] + bytes(4096) + content[21 << 12 :]
        assert (zeroing.is_unreadable(file, 0, 1 << 20), zeroing.is_unreadable(file, 0, 20 << 12)) == (True, False)
        del file


async def workload(mount: Path, mark: int) -> None:
    """Send, and write to the recorder what was acknowledged."""
    async with open_store(config(mount / "store"), now_ms=lambda: time.time_ns() // 1_000_000) as store:
        for number in range(250):
            body = random.Random(number).randbytes(100 + number * 7)
            placed = store.put(Message("T", number % 2, body, b"", 0, 0, 1, HOST))
            fact = [number, placed.queue_offset, placed.log_offset, placed.size]

            def wake(reason: str | None, fact: list[int] = fact) -> None:
                if reason is None:
                    os.pwrite(mark, json.dumps(fact).encode(), 0)  # at 0: a page end would split it

            store.when_committed(placed.end, wake)
            if number % 3 == 0:
                await store.wait_committed(placed.end)
            if number % 60 == 59:
                store.state_file("consumerOffset").save({"number": number})
                await trio.sleep(0.1)


def events(log: Path) -> list[Event]:
    raw, at, found = log.read_bytes(), 0, []
    while at < len(raw):
        kind = raw[at : at + 1]
        if kind == b"W":
            offset, count = struct.unpack_from("<QI", raw, at + 1) if at + 13 <= len(raw) else (0, len(raw))
            if at + 13 + count > len(raw):
                break  # the recorder was killed
            found.append((kind, offset, raw[at + 13 : at + 13 + count]))
            at += 13 + count
        elif kind == b"M":
            (count,) = struct.unpack_from("<I", raw, at + 1)
            found.append((kind, 0, raw[at + 5 : at + 5 + count]))
            at += 5 + count
        else:
            found.append((kind, 0, b""))
            at += 1
    return found


def device_after(base: Path, target: Path, log: list[Event], pick: random.Random) -> list[list[int]]:
    """Write to target what the device may hold after the power failed behind `log`; return what was acknowledged.

    Target is a new file: a loop device of the last one may live on for a moment, and `mount` takes it, with what the
    kernel knows of the old bytes, for a file that is the same.
    """
    target.unlink(missing_ok=True)
    last_flush = max((i for i, event in enumerate(log) if event[0] == b"S"), default=0)
    run("cp", "--sparse=always", str(base), str(target))
    fd = os.open(target, os.O_RDWR)
    for number, (kind, offset, data) in enumerate(log):
        if kind != b"W":
            continue
        if number < last_flush:
            os.pwrite(fd, data, offset)
            continue
        for at in range(0, len(data), 512):
            if pick.random() < 0.5:
                os.pwrite(fd, data[at : at + 512], offset + at)
    os.close(fd)
    return [json.loads(data) for kind, _, data in log if kind == b"M"]


def check(root: Path, acknowledged: list[list[int]]) -> list[str]:
    """Recover the folder; return which acknowledged messages are not as they were."""
    opened = open_folder(config(root), RealDisk(), now_ms=lambda: 1, new_id=lambda: 7, progress=lambda a, b: None)
    recovered, wrong = opened.recovered, []
    for number, queue_offset, log_offset, size in acknowledged:
        raw = read_record(recovered.segments, log_offset, size, recovered.end)
        if raw is None or decode_record(raw).body != random.Random(number).randbytes(100 + number * 7):
            wrong.append(f"message {number} at {log_offset} is gone, the log ends at {recovered.end}")
        queue = recovered.queues.get(MessageQueue("T", number % 2))
        if queue is None or queue.visible <= queue_offset:
            wrong.append(f"message {number} is not in its queue")
    opened.lock.release()
    return wrong


def recorded(work: Path) -> tuple[list[Event], int]:
    """Run the workload; return what its device was told, and where the first acknowledgement stands in that."""
    with recorded_ext4(work) as mount:
        command = [sys.executable, "-m", "tests.power_cut.test_ext4", str(mount), str(work / "fuse" / "mark")]
        subprocess.run(command, check=True, timeout=300, cwd=Path(__file__).parents[2])
    log = events(work / "log")
    marks = [i for i, event in enumerate(log) if event[0] == b"M"]
    assert len(marks) == 250
    return log, marks[0]


def mend_and_mount(image: Path, mounted: Path) -> bool:
    """Mount; a file system that a torn sector of its own keeps from that is mended first, as a boot does."""
    mount = ["mount", "-o", "loop,noatime", str(image), str(mounted)]
    failed = subprocess.run(mount, check=False, capture_output=True, text=True)
    if failed.returncode:
        preened = subprocess.run(["e2fsck", "-p", str(image)], check=False, capture_output=True, text=True)
        print(f"e2fsck -p ended with {preened.returncode}: {preened.stdout.strip()[-200:]}")
        if preened.returncode >= 4:
            mended = subprocess.run(["e2fsck", "-fy", str(image)], check=False, capture_output=True, text=True)
            assert mended.returncode < 4, mended.stdout
        run(*mount)
    return failed.returncode != 0


def replay(work: Path, log: list[Event], cuts: Sequence[int], pick: random.Random) -> list[str]:
    """Mount and recover what each cut may leave; return what was acknowledged and is not so."""
    target, mounted, wrong, began = work / "cut.img", work / "cut", [], time.monotonic()
    mounted.mkdir()
    mended = 0
    for cut in cuts:
        acknowledged = device_after(work / "base.img", target, log[:cut], pick)
        if mend_and_mount(target, mounted):
            mended += 1
        try:
            wrong += [f"cut {cut}: {text}" for text in check(mounted / "store", acknowledged)]
        finally:
            gc.collect()
            run("umount", str(mounted))
    took = (time.monotonic() - began) / len(cuts) * 1000
    print(f"{len(cuts)} cuts under ext4, {took:.0f} ms each, {mended} mounted only after e2fsck")
    return wrong


def test_no_cut_of_the_power_under_ext4_loses_an_acknowledged_message(tmp_path: Path) -> None:
    log, first = recorded(tmp_path)
    pick = random.Random(11)
    assert replay(tmp_path, log, [pick.randrange(first, len(log)) for _ in range(STATES)], pick) == []


@pytest.mark.soak
def test_every_cut_of_the_power_under_ext4_keeps_every_acknowledged_message(tmp_path: Path) -> None:
    log, first = recorded(tmp_path)
    cuts = [cut for cut in range(first, len(log) + 1) if log[cut - 1][0] != b"M"]  # behind each write and each flush
    assert replay(tmp_path, log, cuts, random.Random(12)) == []


async def failing(mount: Path, mark: int, fault: str) -> None:
    """Have the device fail once, send one message after the other all the same, note what is acknowledged."""
    async with open_store(config(mount / "store"), now_ms=lambda: time.time_ns() // 1_000_000) as store:
        os.pwrite(mark, f"fail {fault}".encode(), 0)
        for number in range(60):
            body = random.Random(number).randbytes(100 + number * 7)
            try:
                placed = store.put(Message("T", number % 2, body, b"", 0, 0, 1, HOST))
                await store.wait_committed(placed.end)
                fact = [number, placed.queue_offset, placed.log_offset, placed.size]
                os.pwrite(mark, json.dumps(fact).encode(), 0)
            except StorageError:
                await trio.sleep(0.02)


def acknowledged_before_and_after_the_fault(work: Path, fault: str, pick: random.Random) -> tuple[int, int, list[str]]:
    """Run the workload on a device that fails, then look at what it may hold; return acknowledged, failed, wrong."""
    work.mkdir()
    with recorded_ext4(work) as mount:
        command = [sys.executable, "-m", "tests.power_cut.test_ext4", str(mount), str(work / "fuse" / "mark"), fault]
        ran = subprocess.run(command, check=False, timeout=300, cwd=Path(__file__).parents[2], capture_output=True)
    log = events(work / "log")
    acknowledged = device_after(work / "base.img", work / "cut.img", log, pick)
    (work / "cut").mkdir()
    run("mount", "-o", "loop,noatime", str(work / "cut.img"), str(work / "cut"))
    try:
        wrong = check(work / "cut" / "store", acknowledged)
    finally:
        gc.collect()
        run("umount", str(work / "cut"))
        shutil.rmtree(work)
    faults = sum(event[0] == b"F" for event in log)
    if ran.returncode and b"EIO" not in ran.stderr and b"Errno" not in ran.stderr:
        wrong.append(ran.stderr.decode()[-300:])
    return len(acknowledged), faults, wrong


def every_fault(tmp_path: Path, faults: list[str]) -> None:
    """Try each fault; nothing acknowledged may be missing, and a flush that fails stops the acknowledgements.

    Now and then it is the flush of the clock's file alone, while the journal goes on: then every message is kept.
    """
    pick, wrong, hit, unheard = random.Random(3), [], 0, []
    for fault in faults:
        count, failed, found = acknowledged_before_and_after_the_fault(tmp_path / fault.replace(" ", "-"), fault, pick)
        wrong += [f"{fault}: {text}" for text in found]
        hit += failed
        if failed and count == 60 and "flush" in fault:
            unheard.append(fault)
    print(f"{len(faults)} faults asked for, {hit} happened, all acknowledged in spite of {unheard}")
    assert hit > len(faults) // 2
    assert 4 * len(unheard) <= sum("flush" in fault for fault in faults)
    assert wrong == []


def test_a_flush_or_a_write_of_the_device_that_fails_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    every_fault(tmp_path, ["flush 1", "flush 6", "flush 7", "flush 8", "flush 31", "write 4", "write 23"])


@pytest.mark.soak
def test_every_flush_and_every_write_of_the_device_fails_in_turn(tmp_path: Path) -> None:
    every_fault(tmp_path, [f"{kind} {number}" for number in range(1, 81) for kind in ("flush", "write")])


if __name__ == "__main__":  # in a process of its own: what it leaves open would keep the mount busy
    fd = os.open(sys.argv[2], os.O_WRONLY)
    if len(sys.argv) > 3:
        trio.run(failing, Path(sys.argv[1]), fd, sys.argv[3])
    else:
        trio.run(workload, Path(sys.argv[1]), fd)
