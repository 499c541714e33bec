import errno
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage_driver.files.disk import (
    RealDisk,
    RealFile,
    ShortWrite,
    Usage,
    ask_journal,
    data_pieces,
    make_fixed,
    zero_fill,
)
from tests.protection import protected


def _try_lock(path: str) -> bool:
    try:
        RealDisk().lock(Path(path))
    except BlockingIOError:
        return False
    return True


@pytest.mark.slow
def test_a_lock_keeps_other_processes_and_other_openers_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = RealDisk().lock(path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert not pool.apply(_try_lock, (str(path),))
        with pytest.raises(BlockingIOError):
            RealDisk().lock(path)
        lock.release()
        lock.release()
        assert pool.apply(_try_lock, (str(path),))
    assert path.read_bytes() == b"lock"


@pytest.mark.slow
def test_a_lock_that_nobody_may_write_keeps_others_out_as_well(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    RealDisk().lock(path).release()
    with protected(path), multiprocessing.get_context("spawn").Pool(1) as pool:
        lock = RealDisk().lock(path)
        assert not pool.apply(_try_lock, (str(path),))
        with pytest.raises(BlockingIOError):
            RealDisk().lock(path)
        lock.release()
        assert pool.apply(_try_lock, (str(path),))


def test_a_folder_that_takes_no_names_is_told_when_it_is_wanted(tmp_path: Path) -> None:
    with protected(tmp_path), pytest.raises(PermissionError, match=str(tmp_path)):
        RealDisk().make_folder(tmp_path)


def test_writes_of_more_pieces_than_the_system_takes_are_whole(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "f", create=True)
    file.write([b"%04d" % i for i in range(3000)], 10)
    assert file.read(12_010, 0) == bytes(10) + b"".join(b"%04d" % i for i in range(3000))
    assert len(file.read(100, 12_000)) == 10


def test_a_short_write_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().open(tmp_path / "f", create=True)
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, at: real(fd, [b"".join(pieces)[:3]], at))
    file.write([b"ab", b"cdef", b"g"], 5)
    assert file.read(100, 5) == b"abcdefg"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(ShortWrite, match="wrote nothing") as short:
        file.write([b"abcdef"], 0)
    assert short.value.written == 3


def test_hot_reads_give_whole_pieces_or_nothing(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "f", create=True)
    file.write([b"x" * 100], 0)
    assert file.read_hot(100, 0) in (b"x" * 100, None)
    assert file.read_hot(100, 50) is None


def test_hot_reads_fill_one_buffer_after_the_other_or_say_no(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "f", create=True)
    file.write([b"abcdefgh"], 0)
    target, unwanted = bytearray(5), bytearray(3)
    buffers = [memoryview(target)[:2], memoryview(unwanted)[:2], memoryview(target)[2:]]
    if file.fill_hot(buffers, 1):
        assert (bytes(target), bytes(unwanted)) == (b"bcfgh", b"de\0")
    assert not file.fill_hot(buffers, 2)  # beyond the end


def test_holes_are_skipped_and_zeros_are_made_only_where_needed(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "f", create=True)
    file.resize(10 << 20)
    file.write([b"abc"], 5 << 20)
    found = list(data_pieces(file, 0, 10 << 20))
    assert sum(len(data) for _, data in found) <= 1 << 20
    assert b"".join(data for _, data in found).strip(b"\0") == b"abc"
    assert zero_fill(file, 4 << 20, 10 << 20) == (1 << 20) + 3
    assert list(data_pieces(file, 0, 10 << 20)) == []
    assert zero_fill(file, 0, 10 << 20) == 0


class CountingFile(RealFile):
    """Counts the bytes that are read."""

    counted = 0

    def read(self, count: int, at: int) -> bytes:
        data = super().read(count, at)
        self.counted += len(data)
        return data


def test_what_was_read_ahead_is_not_taken_for_data_behind_the_end(tmp_path: Path) -> None:
    size, end = 256 << 20, 36_870_210
    file = CountingFile(os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT))
    file.allocate(size)
    file.write([b"x" * end], 0)
    file.sync()
    file.advise(0, 0, os.POSIX_FADV_DONTNEED)
    for at in range(0, end, 1 << 20):  # a start reads the log in order, and the kernel goes ahead
        file.read(1 << 20, at)
    file.counted = 0
    assert list(data_pieces(file, end, size)) == []
    assert file.counted < 4 << 20


def test_a_fixed_file_is_never_seen_half_made(tmp_path: Path) -> None:
    for sparse in (False, True):
        target = tmp_path / f"target{sparse}"
        (tmp_path / "t.tmp").write_bytes(b"left over")
        make_fixed(RealDisk(), tmp_path / "t.tmp", target, size=1 << 20, sparse=sparse)
        assert target.read_bytes() == bytes(1 << 20)
        assert (target.stat().st_blocks == 0) == sparse
        assert not (tmp_path / "t.tmp").exists()


def test_an_allocation_that_finds_no_room_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(fd: int, at: int, count: int) -> None:
        os.ftruncate(fd, count // 2)  # as ext4 does
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    file = RealDisk().open(tmp_path / "spare.tmp", create=True)
    with pytest.raises(OSError, match="No space"):
        file.allocate(1000)
    assert file.size() == 0


def test_a_deleted_file_can_be_read_as_long_as_it_is_open(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(tmp_path / "f", create=True)
    file.write([b"abc"], 0)
    disk.remove(tmp_path / "f")
    disk.remove(tmp_path / "f")
    assert file.read(3, 0) == b"abc"
    assert isinstance(file, RealFile)
    fd = file._fd
    del file
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_use_is_rounded_up_as_df_does(tmp_path: Path) -> None:
    assert Usage(899, 101).percent == 90
    assert Usage(901, 99).percent == 91
    assert Usage(0, 0).percent == 0
    usage = RealDisk().usage(tmp_path)
    assert usage.available > 0
    assert 0 <= usage.percent <= 100


def test_folders(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_folder(tmp_path / "a" / "b")
    disk.open(tmp_path / "a" / "f", create=True).write([b"12345"], 0)
    disk.link(tmp_path / "a" / "f", tmp_path / "a" / "g")
    disk.sync_folder(tmp_path / "a")
    disk.sync_all(tmp_path)
    assert [(f.name, f.size if not f.is_folder else 0) for f in disk.list(tmp_path / "a")] == [
        ("b", 0),
        ("f", 5),
        ("g", 5),
    ]
    disk.remove_folder(tmp_path / "a")
    disk.remove_folder(tmp_path / "a")
    assert disk.list(tmp_path / "a") == []
    assert disk.boot_id() == disk.boot_id()


def test_a_journal_that_answers_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    before = os.fstat(fd)
    ask_journal(fd)
    assert os.fstat(fd) == before
    assert os.listxattr(fd) == []
    os.close(fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount")
def test_a_file_system_that_takes_no_changes_any_more_fails_the_sync_of_names(tmp_path: Path) -> None:
    script = "import pathlib, storage_driver.files.disk as d; d.RealDisk().sync_folder(pathlib.Path('.'))"
    mount = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && cd {tmp_path}"
    command = ["unshare", "-m", "sh", "-c", f'{mount} && exec {sys.executable} -c "$0"', script]
    environment = dict(os.environ, PYTHONPATH=os.getcwd())
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ran.returncode == 1
    assert f"[Errno {errno.EROFS}]" in ran.stderr
