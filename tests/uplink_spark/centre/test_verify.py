"""What the gateway finds wrong with a piece before anything of it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from uplink_spark.centre import verify
from uplink_spark.centre.verify import MAX_GAP_BYTES, Verified, judge_for, verify_piece
from uplink_spark.errors import Refused
from uplink_spark.testing import SOURCE, MadeRecord, encode_log, encode_record, gap_piece, log_piece
from uplink_spark.wire.batch import MAX_TOPICS, PieceContents, PieceHeader, encode_piece
from uplink_spark.wire.cbor import encode_map
from uplink_spark.wire.frames import Hello
from uplink_spark.zone.manifest import Placement, encode_items, entry_of, read_items

STORED = 1_700_000_000_001
RECORDS = [MadeRecord(queue_offset=number, stored_ms=STORED + number) for number in range(5)]
SIZE = len(encode_record(RECORDS[0], 0))
GAP = {
    "id": [7, 1], "class": "missing", "reason": "quota_bytes", "declared": 1, "since": 1, "until": 2, "records": 3,
    "bytes": 10, "queues": [["T", 0, 5, 7, 3]],
}  # fmt: skip
HELLO = Hello(SOURCE.box, ((5, 0), (SOURCE.epoch, 1000)), ((6, 0), (7, 3000)), 0, 9000, STORED, 1, "test")


def nothing(header: PieceHeader) -> None:
    """Every piece is welcome."""


def verified(contents: PieceContents, codec: str = "zlib") -> Verified:
    return verify_piece(encode_piece(SOURCE, contents, codec)[1], nothing)


def contents_of(raw: bytes, kind: str = "log", start: int = 100, count: int = 5, **changes: object) -> PieceContents:
    index = b"".join(SIZE.to_bytes(4, "little") for _ in range(count))
    made = PieceContents(kind, start, start + len(raw), raw, index, STORED, STORED + count - 1)
    return replace(made, **changes)  # type: ignore[arg-type]


def refusal(contents: PieceContents) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        verified(contents)
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize("codec", ["zstd", "zlib", "none"])
def test_a_whole_piece_is_known_to_its_last_record_and_may_be_cut_between_two(codec: str) -> None:
    header, container = log_piece(RECORDS, 100, codec=codec)
    judged: list[PieceHeader] = []
    found = verify_piece(container, judged.append)
    assert (found.header, found.container, judged) == (header, container, [header])
    assert found.starts.tolist() == [100 + number * SIZE for number in range(5)]
    assert found.ends.tolist() == [100 + (number + 1) * SIZE for number in range(5)]
    cuts = [at for at in range(90, 100 + 6 * SIZE) if found.may_cut(at)]
    assert cuts == [*range(90, 101), *found.ends.tolist()[:-1], *range(100 + 5 * SIZE, 100 + 6 * SIZE)]


def test_a_range_without_records_has_no_border() -> None:
    found = verified(PieceContents("log", 0, 50, b"", b""))
    assert (found.starts.tolist(), found.ends.tolist(), found.may_cut(20)) == ([], [], True)


def test_records_that_are_not_what_the_header_says_are_refused_with_the_place() -> None:
    raw = encode_log(RECORDS, 100)
    code, text = refusal(contents_of(raw[: 2 * SIZE] + encode_log(RECORDS[2:], 100 + 2 * SIZE + 1)))
    assert (code, "log-offset field says" in text, str(100 + 2 * SIZE) in text) == ("bad_records", True, True)
    assert refusal(contents_of(raw, stored_ms_max=STORED))[1].endswith("tmin and tmax are not the records' store times")
    assert refusal(contents_of(raw[:-1]))[0] == "bad_records"
    for nothing_found in (raw, bytes(50)):
        found = PieceContents("log", 100, 100 + len(nothing_found), nothing_found, b"")
        assert refusal(found) == (
            "bad_records",
            f"bad_records: log offset 100: {len(nothing_found)} bytes without a record",
        )


def test_selected_records_ascend_inside_their_range() -> None:
    first, second = encode_record(RECORDS[0], 100), encode_record(RECORDS[1], 900)
    picked = verified(contents_of(first + second, "pick", count=2, end=900 + SIZE))
    assert (picked.starts.tolist(), picked.ends.tolist()) == ([100, 900], [100 + SIZE, 900 + SIZE])
    for wrong in (
        contents_of(first + second, "pick", count=2, end=900 + SIZE - 1),
        contents_of(first + second, "pick", start=101, count=2, end=900 + SIZE),
        contents_of(second + first, "pick", count=2, end=900 + SIZE),
        contents_of(first + encode_record(RECORDS[1], 100 + SIZE - 1), "pick", count=2, end=900 + SIZE),
    ):
        code, text = refusal(wrong)
        assert (code, "not in ascending order inside the range" in text) == ("bad_records", True)


def test_a_blob_lands_as_the_gap_it_is() -> None:
    found = verified(PieceContents("blob", 100, 150, b"x" * 50))
    assert found.gap == {"class": "damaged", "reason": "bad_records", "bytes": 50, "declared": SOURCE.cut_ms}
    assert not found.starts.size


def test_a_gap_has_a_known_class_an_id_and_rows_of_queues() -> None:
    assert verify_piece(gap_piece(0, 10, GAP).container, nothing).gap == GAP
    for spoilt in (
        GAP | {"class": "lost"},
        GAP | {"reason": 5},
        GAP | {"queues": [["T", 0, 5]]},
        GAP | {"id": [7]},
        {key: value for key, value in GAP.items() if key != "id"},
    ):
        with pytest.raises(Refused) as caught:
            verify_piece(gap_piece(0, 10, spoilt).container, nothing)
        assert caught.value.code == "damaged", spoilt


def test_the_largest_gap_is_an_entry_that_the_manifest_reads_and_a_larger_one_is_refused() -> None:
    """A larger one was landed: it hid whatever came behind it, and the gateway did not start again."""
    size = MAX_GAP_BYTES - len(encode_map(GAP | {"reason": "x" * MAX_GAP_BYTES})) + MAX_GAP_BYTES
    topics = {f"{number:0200}": (1, 1) for number in range(MAX_TOPICS)}
    contents = PieceContents("gap", 0, 10, encode_map(GAP | {"reason": "x" * size}), topics=topics)
    header, container = encode_piece(SOURCE, contents, "zlib")
    verified = verify_piece(container, nothing)
    assert header.raw_bytes == MAX_GAP_BYTES
    entry = entry_of(header, len(container), Placement(0, "p" * 200, 0, 0, 10, 0), verified.gap)
    assert read_items(encode_items([entry]), 0).pending == (entry,)
    with pytest.raises(Refused, match=r"a gap of \d+ bytes, at most \d+") as caught:
        verify_piece(gap_piece(0, 10, GAP | {"reason": "x" * (size + 1)}).container, nothing)
    assert caught.value.code == "too_big"


def test_the_header_is_judged_before_anything_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, container = log_piece(RECORDS)

    def refuse(header: PieceHeader) -> None:
        raise Refused("not_yours", header.box)

    with pytest.raises(Refused, match="box-17"):
        verify_piece(container, refuse)
    monkeypatch.setattr(verify, "MAX_RAW_BYTES", SIZE)
    with pytest.raises(Refused) as caught:
        verify_piece(container, nothing)
    assert caught.value.code == "too_big"
    monkeypatch.undo()
    monkeypatch.setattr(verify, "codecs_here", lambda: ("none",))
    with pytest.raises(Refused) as caught:
        verify_piece(container, nothing)
    assert (caught.value.code, "only none" in str(caught.value)) == ("codec", True)


def test_a_changed_byte_is_damage() -> None:
    _, container = log_piece(RECORDS, codec="none")
    with pytest.raises(Refused) as caught:
        verify_piece(container[:-30] + bytes([container[-30] ^ 1]) + container[-29:], nothing)
    assert caught.value.code == "damaged"


def header_at(start: int, end: int, **changes: object) -> PieceHeader:
    made, _ = encode_piece(SOURCE, PieceContents("gap", start, end, b""), "none")
    return replace(made, **({"kind": "log", "run": 7, "run_start": 3000} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (header_at(3000, 9000), ""),
        (header_at(1000, 3000, run=6, run_start=0), ""),
        (header_at(2000, 4000, run=6, run_start=0, kind="gap"), ""),  # a loss may span a restart
        (header_at(1000, 2000, run=6, run_start=-5), ""),  # of the oldest run that is told the start may be older
        (header_at(0, 1000, epoch=5, run=6, run_start=0), ""),
        (header_at(3000, 9000, box="box-18"), "connected is box-17"),
        (header_at(3000, 9000, epoch=9), "epoch 9 is not in HELLO"),
        (header_at(500, 2000, run=6, run_start=0), "outside 1000"),
        (header_at(0, 1001, epoch=5, run=6, run_start=0), "outside 0..1000"),
        (header_at(3000, 9000, run_start=2999), "run 7 at 2999 is not in HELLO"),
        (header_at(3000, 9000, run=8), "run 8 at 3000 is not in HELLO"),
        (header_at(1000, 2000, run=6, run_start=5), "run 6 at 5 is not in HELLO"),
        (header_at(2000, 3001, run=6, run_start=0), "crosses the run start 3000"),
    ],
)
def test_a_piece_belongs_to_the_box_its_epochs_and_runs(header: PieceHeader, why: str) -> None:
    judge = judge_for(HELLO)
    if not why:
        judge(header)
        return
    with pytest.raises(Refused) as caught:
        judge(header)
    assert (caught.value.code, why in str(caught.value)) == ("not_yours", True), str(caught.value)
