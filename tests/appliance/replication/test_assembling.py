"""Whole records come out of slices that were cut anywhere, and a blank as its head alone."""

import random

import pytest

from appliance.replication.assembling import LogDiffers, RecordAssembler
from netstack.wire.replication import LogSlice
from storage_driver.record import BLANK, BLANK_BYTES
from tests.appliance.replication.test_slicing import log_of

MOST = 1 << 20


def slices(data: bytes, sizes: list[int], start: int = 0) -> list[LogSlice]:
    """Cut bytes of a log into slices of these sizes, the last one takes the rest."""
    found, at = list[LogSlice](), 0
    for size in [*sizes, len(data)]:
        found.append(LogSlice(start + at, data[at : at + size]))
        at += len(found[-1].data)
    return found


def test_records_come_out_whole_wherever_the_log_was_cut() -> None:
    for seed in range(50):
        dice = random.Random(seed)
        base = dice.choice([0, 4096])
        data, starts = log_of([dice.choice([1, 90, 5000, 70_000]) for _ in range(dice.randint(1, 12))])
        assembler, copy = RecordAssembler(base, most_bytes=MOST), b""
        for found in slices(data, [dice.randint(0, 9000) for _ in range(30)], base):
            for run in assembler.feed(found):
                assert (run.log_offset, run.blank) == (base + len(copy), False), seed
                copy += run.data
                assert len(copy) in starts, seed
                assert run.records_end == base + len(copy)
        assert copy == data, seed


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 4999])
def test_a_blank_is_its_head_and_the_next_record_follows_it(cut: int) -> None:
    first, starts = log_of([100], blank=5000)
    data = first + log_of([100])[0]
    assembler = RecordAssembler(0, most_bytes=MOST)
    runs = [run for found in slices(data, [starts[1] + cut]) for run in assembler.feed(found)]
    joined = b"".join(run.data for run in runs if run.log_offset < len(first))
    assert joined == first[: starts[1] + BLANK_BYTES]
    assert [(run.log_offset, run.blank) for run in runs if run.blank or run.log_offset][-2:] == [
        (max(run.log_offset for run in runs if run.blank), True),
        (len(first), False),
    ]


def test_what_does_not_follow_is_another_log() -> None:
    data, _ = log_of([100])
    assembler = RecordAssembler(1000, most_bytes=MOST)
    assembler.feed(LogSlice(1000, b""))  # a heartbeat
    for at in (0, 999, 1001):
        with pytest.raises(LogDiffers, match=f"sends its log from {at} on, this copy ends at 1000"):
            assembler.feed(LogSlice(at, data))


@pytest.mark.parametrize("head", [b"\0" * 8, b"\xff" * 8, BLANK.pack(7, 0x0DAA320A)])
def test_what_is_not_a_record_is_told_by_its_head(head: bytes) -> None:
    with pytest.raises(LogDiffers, match="no record of the master's begins at 0"):
        RecordAssembler(0, most_bytes=MOST).feed(LogSlice(0, head))


def test_a_record_that_is_too_large_is_refused_before_it_has_come() -> None:
    data, _ = log_of([MOST])
    with pytest.raises(LogDiffers, match=r"raise limits.message_mib"):
        RecordAssembler(0, most_bytes=MOST).feed(LogSlice(0, data[:100]))
