"""What lets a file of the log go: synced receipts, declared losses, nothing else, and none of a damaged state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.files import unreadable
from tests.bad_disk import BadDisk
from uplink_spark.box.caps import MonthUse
from uplink_spark.box.receipts import ledger as ledger_module
from uplink_spark.box.receipts.gaps import KEPT_GAPS, Gap
from uplink_spark.box.receipts.ledger import Ledger, ReceiptSeen
from uplink_spark.testing import files_end_at
from uplink_spark.wire.cbor import decode_map, encode_map
from uplink_spark.wire.durable import write_synced

LANDING, OTHER = b"L" * 16, b"O" * 16


def opened(folder: Path) -> Ledger:
    ledger = Ledger(folder)
    ledger.open()
    return ledger


def seen(start: int, end: int, kind: str = "log") -> ReceiptSeen:
    return ReceiptSeen(start, end, kind, 1, 0, 0, 1_700_000_000_000)


def gap(number: int, start: int, end: int) -> Gap:
    return Gap(5, 7, 0, start, end, {"id": [7, number], "class": "missing", "reason": "quota_bytes"})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = opened(tmp_path / "rocketbox")
    made.welcome(LANDING, [], [])
    return made


def test_a_receipt_lets_bytes_go_only_after_it_was_saved(ledger: Ledger) -> None:
    ledger.receipt("log", seen(0, 100))
    assert not ledger.may_release(0, 100)
    assert not opened(ledger.folder).may_release(0, 100)
    ledger.save()
    assert ledger.may_release(0, 100)
    assert opened(ledger.folder).may_release(0, 100)
    assert not ledger.may_release(0, 101)
    assert ledger.unshipped(0, 130) == [(100, 130)]


@pytest.mark.slow
def test_a_state_with_all_gaps_that_are_kept_is_read_again(ledger: Ledger) -> None:
    ledger.gaps.delivered = {(1 << 62, number) for number in range(KEPT_GAPS + 1000)}
    ledger.receipt("log", seen(0, 100))
    ledger.paused = True
    ledger.save()
    again = opened(ledger.folder)
    assert (again.damage, again.paused, again.gaps.delivered) == (None, True, ledger.gaps.delivered)


def test_a_save_that_fails_lets_nothing_go_and_keeps_the_state_before(ledger: Ledger) -> None:
    ledger.receipt("log", seen(0, 50))
    ledger.save()
    ledger.receipt("log", seen(50, 100))
    with files_end_at(10), pytest.raises(OSError, match="too large"):
        ledger.save()
    assert not ledger.may_release(0, 100)
    assert ledger.may_release(0, 50)
    again = opened(ledger.folder)
    assert list(again.receipted.log) == [(0, 50)]
    assert again.damage is None
    ledger.save()
    assert ledger.may_release(0, 100)


@pytest.mark.parametrize(
    "meanwhile",
    [lambda ledger: ledger.welcome(OTHER, [], []), lambda ledger: ledger.welcome(LANDING, [], []),
     lambda ledger: ledger.forked(0)],
)  # fmt: skip
def test_what_a_welcome_or_a_fork_made_void_during_a_save_lets_nothing_go(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Ledger], object]
) -> None:
    ledger.receipt("log", seen(0, 100))

    def write(path: Path, data: bytes) -> None:
        write_synced(path, data)
        meanwhile(ledger)

    monkeypatch.setattr(ledger_module, "write_synced", write)
    ledger.save()
    assert not ledger.may_release(0, 100)
    monkeypatch.undo()
    ledger.save()
    assert not ledger.may_release(0, 100)


def test_a_receipt_during_a_save_waits_for_the_next(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.receipt("log", seen(0, 100))
    sum_of = ledger_module._sum

    def receipted_meanwhile(state: dict[str, object]) -> int:
        ledger.receipt("log", seen(100, 200))
        return sum_of(state)

    monkeypatch.setattr(ledger_module, "_sum", receipted_meanwhile)
    ledger.save()
    assert (ledger.may_release(0, 100), ledger.may_release(0, 200), ledger.unsaved_bytes) == (True, False, 100)


def test_everything_is_there_after_a_restart(ledger: Ledger) -> None:
    ledger.receipt("log", seen(0, 100))
    ledger.receipt("pick", seen(20, 40, "pick"))
    ledger.elsewhere.add(7, 9)
    ledger.month, ledger.paused, ledger.newest = MonthUse("2026-11", 12_345), True, (3, 88_213)
    ledger.gaps.declare(gap(1, 300, 400))
    ledger.gaps.note_delivered(gap(1, 300, 400))
    ledger.save()
    again = opened(ledger.folder)
    for name in ("landing", "receipted", "elsewhere", "month", "paused", "newest"):
        assert getattr(again, name) == getattr(ledger, name), name
    assert again.gaps.delivered == ledger.gaps.delivered
    assert again.gaps.log.gaps == [gap(1, 300, 400)]
    assert again.may_release(300, 400)  # declared


def test_what_one_byte_is_flipped_in_is_not_believed(ledger: Ledger) -> None:
    ledger.receipt("log", seen(0, 0x1234_5678))
    ledger.save()
    path = ledger.folder / "uplink.cbor"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        again = opened(ledger.folder)
        if again.damage is None:  # the flip was in the name of the sum: an older box wrote none
            assert again.receipted == ledger.receipted, place
        else:
            assert not again.may_release(0, 1), place
            assert (again.landing, again.paused) == (None, False), place


@pytest.mark.parametrize(
    "key", ["landing", "elsewhere", "express", "month", "month_bytes", "delivered", "paused", "newest"]
)
def test_of_a_state_with_one_bad_field_nothing_is_taken_over(ledger: Ledger, key: str) -> None:
    ledger.receipt("log", seen(0, 100))
    ledger.save()
    path = ledger.folder / "uplink.cbor"
    fields = decode_map(path.read_bytes())
    del fields["sum"]
    path.write_bytes(encode_map(fields))  # as boxes wrote it before there was a sum
    assert opened(ledger.folder).may_release(0, 100)
    path.write_bytes(encode_map(fields | {key: [["x"]]}))
    again = opened(ledger.folder)
    assert again.damage is not None
    assert key.split("_")[0] in again.damage
    assert not again.receipted.log
    assert not again.may_release(0, 100)


def test_another_landing_has_receipted_nothing_and_what_the_old_one_held_is_remembered(ledger: Ledger) -> None:
    ledger.receipt("log", seen(0, 100))
    ledger.gaps.declare(gap(1, 100, 120))
    ledger.gaps.note_delivered(gap(1, 100, 120))
    ledger.save()
    assert ledger.welcome(OTHER, [(0, 30)], []) == []
    assert list(ledger.elsewhere) == [(0, 100)]
    assert list(ledger.receipted.log) == [(0, 30)]
    assert ledger.gaps.undelivered() == [gap(1, 100, 120)]  # the new one has not heard of it
    assert not ledger.may_release(0, 30)  # until it is saved
    ledger.save()
    assert ledger.may_release(0, 30)
    assert not ledger.may_release(0, 31)


def test_a_landing_that_lost_what_it_had_receipted_is_found_out(ledger: Ledger) -> None:
    ledger.receipt("log", seen(0, 100))
    ledger.save()
    assert ledger.welcome(LANDING, [(0, 40), (60, 90)], []) == [(40, 60), (90, 100)]
    assert not ledger.may_release(0, 40)
    ledger.save()
    assert ledger.may_release(60, 90)
    assert not ledger.may_release(40, 60)


def test_bytes_of_a_new_epoch_are_receipted_by_nobody(ledger: Ledger) -> None:
    ledger.receipt("log", seen(0, 100))
    ledger.receipt("pick", seen(50, 100, "pick"))
    ledger.elsewhere.add(0, 200)
    ledger.save()
    ledger.forked(60)
    assert ledger.may_release(0, 60)
    assert not ledger.may_release(60, 61)
    assert list(ledger.receipted.pick) == [(50, 60)]
    assert list(ledger.elsewhere) == [(0, 60)]


def test_where_express_topics_travel_apart_both_lanes_must_be_receipted(ledger: Ledger) -> None:
    ledger.switches = [(40, ("ALARM",)), (80, ())]
    assert [ledger.express_at(at) for at in (0, 39, 40, 79, 80)] == [(), (), ("ALARM",), ("ALARM",), ()]
    assert ledger.pick_spans(0, 200) == [(40, 80)]
    assert ledger.pick_spans(50, 60) == [(50, 80)]
    ledger.receipt("log", seen(0, 100))
    ledger.receipt("pick", seen(40, 70, "pick"))
    ledger.save()
    assert ledger.may_release(0, 70)
    assert not ledger.may_release(0, 71)
    ledger.gaps.declare(gap(1, 70, 80))
    assert ledger.may_release(0, 100)


def test_express_switches_that_an_earlier_release_kept_here_are_found(ledger: Ledger) -> None:
    state = decode_map(ledger._encode(ledger.receipted)) | {"express": [[20, ["ALARM", "T"]], [40, []]]}
    del state["sum"]
    (ledger.folder / "uplink.cbor").write_bytes(encode_map(state))
    again = opened(ledger.folder)
    assert again.switches == [(20, ("ALARM", "T")), (40, ())]
    again.save()
    assert opened(ledger.folder).switches == [], "the lineage has them now"


Ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=5)


@settings(max_examples=25)
@given(Ranges, Ranges, Ranges, st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=3))
def test_a_range_may_go_when_each_byte_of_it_may(
    tmp_path_factory: pytest.TempPathFactory,
    log: list[tuple[int, int]],
    pick: list[tuple[int, int]],
    gaps: list[tuple[int, int]],
    switches: list[tuple[int, bool]],
) -> None:
    ledger = Ledger(tmp_path_factory.getbasetemp())
    for start, end in log:
        ledger.receipted.log.add(start, end)
    for start, end in pick:
        ledger.receipted.pick.add(start, end)
    for start, end in gaps:
        ledger.gaps.synced.add(start, end)
    ledger.switches = [(at, ("ALARM",) if on else ()) for at, on in sorted(dict(switches).items())]
    ledger._synced = ledger.receipted

    def within(byte: int, ranges: list[tuple[int, int]]) -> bool:
        return any(start <= byte < end for start, end in ranges)

    free = [
        within(byte, gaps) or (within(byte, log) and (not ledger.express_at(byte) or within(byte, pick)))
        for byte in range(40)
    ]
    for base in range(0, 40, 7):
        for end in range(base + 1, 41, 5):
            assert ledger.may_release(base, end) == all(free[base:end]), (base, end)


def test_a_state_that_cannot_be_read_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, disk = tmp_path / "rocketbox", BadDisk()
    folder.mkdir()
    (tmp_path / "other").write_bytes(b"readable")
    monkeypatch.setattr(unreadable, "RealDisk", lambda: disk)
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    first = opened(folder)
    first.receipt("log", seen(0, 10))
    first.save()
    disk.bad["rocketbox/uplink.cbor"] = [(0, 1)]
    again = opened(folder)
    assert (list(again.receipted.log), again.damage is not None) == ([], True)
    again.save()
    disk.bad.clear()
    assert opened(folder).damage is None, "the save has replaced it"
