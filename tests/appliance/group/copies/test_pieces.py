"""A stretch of the log is divided between records."""

from appliance.group.copies.pieces import LogPiece, cut_piece, whole_records
from storage_driver.record import BLANK, MAGIC_BLANK


def test_pieces_are_cut_between_records() -> None:
    records = [BLANK.pack(8 + size, 1) + bytes(size) for size in (92, 192, 92)]
    blank = BLANK.pack(1000 - 400, MAGIC_BLANK)
    data = b"".join(records)
    assert whole_records(0, data + b"\0" * 50, 1000) == LogPiece(0, data, 400)
    assert whole_records(0, data[:399], 1000) == LogPiece(0, data[:300], 300)
    assert whole_records(2000, data + blank + bytes(9), 1000) == LogPiece(2000, data + blank, 3000)
    for most, kept in ((1, 100), (100, 100), (299, 100), (300, 300), (399, 300), (400, 400)):
        assert cut_piece(LogPiece(0, data, 400), most).end == kept
    assert cut_piece(LogPiece(0, blank, 1000), 1) == LogPiece(0, blank, 1000)
