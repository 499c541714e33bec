from pathlib import Path

import pytest

from uplink_spark.errors import LandingError
from uplink_spark.spark import packs
from uplink_spark.spark.packs import PieceRef, read_batches, ref_of
from uplink_spark.spark.rows import EVERYTHING
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.zone.files import LocalFiles


def landed(landing: MadeLanding, commits: list[int]) -> list[PieceRef]:
    """Land commits of some pieces of three records; return what a task gets."""
    refs, at, number = [], 0, 0
    for count in commits:
        pieces = []
        for _ in range(count):
            pieces.append(log_piece([MadeRecord(body=b"%d" % (number + n)) for n in range(3)], at))
            at, number = pieces[-1][0].end, number + 3
        refs += [ref_of(entry, 0) for entry in landing.land(*pieces)]
    return refs


class CountingFiles(LocalFiles):
    reads = 0

    def read_range(self, path: str, at: int, size: int) -> bytes:
        self.reads += 1
        return super().read_range(path, at, size)


def test_neighbours_in_a_pack_are_read_and_decoded_together(landing: MadeLanding) -> None:
    files = CountingFiles(str(landing.root))
    refs = landed(landing, [4, 3])
    (batch,) = read_batches(files, refs, EVERYTHING)
    assert batch["body"].to_pylist() == [b"%d" % n for n in range(21)]
    assert batch["seq"].to_pylist() == [n // 3 for n in range(21)]
    assert files.reads == 2
    list(read_batches(files, [refs[0], refs[2]], EVERYTHING))
    assert files.reads == 4


def test_a_pass_holds_a_bounded_number_of_bytes(landing: MadeLanding, monkeypatch: pytest.MonkeyPatch) -> None:
    refs = landed(landing, [6])
    monkeypatch.setattr(packs, "PASS_BYTES", refs[0].raw_bytes * 2 + 10)
    batches = list(read_batches(LocalFiles(str(landing.root)), refs, EVERYTHING))
    assert [batch.num_rows for batch in batches] == [6, 6, 6]


def broken(landing: MadeLanding, refs: list[PieceRef], which: int) -> Path:
    path = landing.root / refs[which].pack
    raw = bytearray(path.read_bytes())
    raw[refs[which].offset + refs[which].stored_bytes - 1] ^= 0xFF
    path.write_bytes(raw)
    return path


def test_a_damaged_piece_is_named_or_left_out_and_its_neighbours_are_kept(
    landing: MadeLanding, capsys: pytest.CaptureFixture[str]
) -> None:
    refs = landed(landing, [3])
    path = broken(landing, refs, 1)
    files = LocalFiles(str(landing.root))
    with pytest.raises(LandingError, match=r"box box-17, epoch 123456789abcdef, log .* CRC-32") as caught:
        list(read_batches(files, refs, EVERYTHING))
    assert f"{path} at {refs[1].offset}" in str(caught.value)
    assert f"check --deep --landing {landing.root}" in str(caught.value)
    (batch,) = read_batches(files, refs, EVERYTHING, fail_on_loss=False)
    assert batch["seq"].to_pylist() == [0, 0, 0, 2, 2, 2]
    assert "uplink_spark lost rows: box box-17" in capsys.readouterr().err


def test_a_missing_pack_is_named_for_every_piece_in_it(
    landing: MadeLanding, capsys: pytest.CaptureFixture[str]
) -> None:
    refs = landed(landing, [2, 1])
    (landing.root / refs[0].pack).unlink()
    files = LocalFiles(str(landing.root))
    with pytest.raises(LandingError, match="No such file"):
        list(read_batches(files, refs, EVERYTHING))
    (batch,) = read_batches(files, refs, EVERYTHING, fail_on_loss=False)
    assert batch["seq"].to_pylist() == [2, 2, 2]
    assert capsys.readouterr().err.count("lost rows") == 2
