"""Reports and slices: whole whatever the split of the bytes, and nothing else passes for them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netstack.errors import ProtocolError
from netstack.wire.replication import (
    HIGHEST,
    MOST_SLICE_BYTES,
    REPORT,
    SLICE_HEAD,
    LogSlice,
    ReportDecoder,
    SliceDecoder,
    TimerCheckpoint,
)

offsets = st.integers(0, HIGHEST - 1)


@given(st.lists(offsets, max_size=8), st.lists(st.integers(0, 64), max_size=6))
def test_reports_come_out_whole_whatever_the_split(sent: list[int], cuts: list[int]) -> None:
    stream, reports, found = b"".join(map(REPORT.pack, sent)), ReportDecoder(), list[int]()
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    for start, end in pairwise(ends):
        found += reports.feed(stream[start:end])
    assert found == sent


def test_a_report_of_seven_bytes_waits_for_its_last() -> None:
    reports = ReportDecoder()
    assert reports.feed(REPORT.pack(4711)[:7]) == []
    assert reports.feed(REPORT.pack(4711)[7:]) == [4711]


@pytest.mark.parametrize(
    "data",
    [
        REPORT.pack(-1),
        REPORT.pack(5) + REPORT.pack(-(1 << 63)),
        REPORT.pack(HIGHEST),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01",
        b"\xff",
    ],
)
def test_what_is_no_log_offset_is_told_by_its_first_byte(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="is not a log offset: this is not a slave"):
        ReportDecoder().feed(data)


@given(st.lists(st.tuples(offsets, st.binary(max_size=40)), max_size=5), st.lists(st.integers(0, 200), max_size=6))
def test_slices_come_out_whole_whatever_the_split(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(SLICE_HEAD.pack(at, len(data)) + data for at, data in sent)
    slices, found = SliceDecoder(), list[LogSlice]()
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    for start, end in pairwise(ends):
        found += slices.feed(stream[start:end])
    assert [(each.log_offset, each.data) for each in found] == sent
    assert [each.end for each in found] == [at + len(data) for at, data in sent]


def test_a_timer_checkpoint_is_seven_numbers_of_which_two_count() -> None:
    body = TimerCheckpoint(1_700_000_000_000, 77).to_bytes()
    assert len(body) == 56
    assert TimerCheckpoint.from_bytes(body) == (1_700_000_000_000, 77)
    assert TimerCheckpoint.from_bytes(body[:32]) == (1_700_000_000_000, 77), "as brokers before 5.1 send it"
    with pytest.raises(ProtocolError, match="a timer checkpoint of 31 bytes"):
        TimerCheckpoint.from_bytes(body[:31])


@pytest.mark.parametrize(("at", "size"), [(0, -1), (0, MOST_SLICE_BYTES + 1), (-1, 5), (HIGHEST, 0)])
def test_a_slice_that_no_master_sends_is_refused_by_its_head(at: int, size: int) -> None:
    with pytest.raises(ProtocolError, match=rf"a slice of {size} bytes at {at}, .* this is not a master"):
        SliceDecoder().feed(SLICE_HEAD.pack(at, size))
