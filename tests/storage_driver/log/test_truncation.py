"""A cut of the log is done or not, wherever the power goes, and nothing that was cut is ever read as the log again."""

import random
from pathlib import Path

import pytest

from storage_driver.files.checkpoint import CheckpointValues, PositionFile
from storage_driver.files.disk import Usage
from storage_driver.log.cut_history import CutDone
from storage_driver.log.segment import segment_name
from storage_driver.log.truncation import Truncation
from storage_driver.testing import MemoryDisk

ROOT = Path("/store")
SIZE = 8192
AT, END = 5000, 2 * SIZE + 700
FOLDERS = ("/", *(f"/store{name}" for name in ("", "/commitlog", "/rocketbox")))


def content(number: int) -> bytes:
    return random.Random(number).randbytes(SIZE)


def log_file(number: int) -> str:
    return str(ROOT / "commitlog" / segment_name(number * SIZE))


def disk(position: int = 0) -> MemoryDisk:
    files = {log_file(number): content(number) for number in range(2)}
    one = MemoryDisk({**files, log_file(2): content(2)[:700] + bytes(SIZE - 700)}, FOLDERS)
    if position:
        PositionFile(one, ROOT / "rocketbox" / "position").save(
            CheckpointValues(position, position - 10, 3, 9, bytes(16))
        )
    return one


def kept(one: MemoryDisk) -> bytes:
    """Return what of the log is left, files one behind the other."""
    numbers = [number for number in range(3) if one.exists(Path(log_file(number)))]
    assert numbers == list(range(len(numbers))), "what is left is the beginning of what was there"
    return b"".join(one.open(Path(log_file(number))).read(SIZE, 0) for number in numbers)


def quarantined(one: MemoryDisk) -> bytes:
    folder = ROOT / "quarantine"
    names = sorted(facts.name for facts in one.list(folder)) if one.exists(folder) else []
    return b"".join(one.open(folder / name).read(int(name[25:]) - int(name[4:24]), 0) for name in names)


def test_a_cut_is_done_and_kept_whole_on_a_small_disk() -> None:
    """All of it is more than quarantine/ may hold; a start that could not finish the cut would refuse for ever."""
    one = disk()
    one.space = Usage(0, 20 * SIZE)
    done = Truncation(one, ROOT).cut(AT, END, "the other log differs")
    assert len(done.quarantined) == 3
    assert quarantined(one) == content(0)[AT:] + content(1) + content(2)[:700]
    assert kept(one) == content(0)[:AT] + bytes(SIZE - AT)


def test_a_cut_zeroes_the_rest_of_its_segment_removes_the_later_ones_and_keeps_their_bytes() -> None:
    one = disk(position=SIZE)
    done = Truncation(one, ROOT).cut(AT, END, "the other log differs")
    assert (done.log_offset, done.end, done.reason, len(done.quarantined)) == (AT, END, "the other log differs", 3)
    assert kept(one) == content(0)[:AT] + bytes(SIZE - AT)
    assert quarantined(one) == content(0)[AT:] + content(1) + content(2)[:700]
    position = PositionFile(one, ROOT / "rocketbox" / "position").load()
    assert position is not None
    assert (position.queues_to, position.index_to) == (AT, AT)
    assert Truncation(one, ROOT).finish() is None, "nothing is left to do"


def test_a_position_below_the_cut_stays() -> None:
    one = disk(position=AT - 1000)
    Truncation(one, ROOT).cut(AT, END, "why")
    position = PositionFile(one, ROOT / "rocketbox" / "position").load()
    assert position is not None
    assert (position.queues_to, position.index_to) == (AT - 1000, AT - 1010)


def test_a_journal_that_was_never_whole_cuts_nothing() -> None:
    one = disk()
    file = one.open(ROOT / "rocketbox" / "cut.json", create=True)
    file.write([b'{"log_off'], 0)
    assert Truncation(one, ROOT).finish() is None
    assert kept(one)[:SIZE] == content(0)


@pytest.mark.parametrize("seed", range(4))
def test_wherever_the_power_goes_the_cut_is_done_whole_or_not_begun(seed: int) -> None:
    whole = disk(position=SIZE)
    Truncation(whole, ROOT).cut(AT, END, "why")
    outcomes = set()
    for fail_at in range(len(whole.steps) + 1):
        one = disk(position=SIZE)
        one.fail_at, one.keep_failing = fail_at, True
        try:
            Truncation(one, ROOT).cut(AT, END, "why")
        except OSError:
            pass
        left = one.after_power_cut(random.Random(seed * 1000 + fail_at))
        finished = Truncation(left, ROOT).finish()
        log = kept(left)
        if log.strip(b"\0") == (content(0)[:AT]).strip(b"\0"):
            outcomes.add("done")
            assert quarantined(left) == content(0)[AT:] + content(1) + content(2)[:700]
            assert finished is None or isinstance(finished, CutDone)
        else:
            outcomes.add("not begun")
            assert finished is None
            assert log == content(0) + content(1) + content(2)[:700] + bytes(SIZE - 700)
    assert outcomes == {"done", "not begun"}
