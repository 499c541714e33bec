"""Pieces without a receipt: numbered as the gateway counts them, each answered once."""

from __future__ import annotations

import pytest

from uplink_spark.box.in_flight import InFlight, PiecesInFlight
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.errors import ProtocolError
from uplink_spark.testing import SOURCE
from uplink_spark.wire.batch import PieceContents, encode_piece

GAP = Gap(SOURCE.epoch, SOURCE.run, 0, 10, 20, {"id": [SOURCE.run, 4]})


def piece(start: int, gap: Gap | None = None) -> InFlight:
    header, container = encode_piece(SOURCE, PieceContents("gap", start, start + 10, b"\xa0"), "none")
    return InFlight(header, len(container), b"", gap)


def test_each_number_is_answered_once_and_all_bytes_stay_counted() -> None:
    flying, first, second = PiecesInFlight(), piece(0), piece(10, GAP)
    flying.add(first)
    flying.add(second)
    assert flying.has_gap(GAP)
    assert flying.take(1, "RECEIPT") is second
    assert not flying.has_gap(GAP)
    with pytest.raises(ProtocolError, match="RECEIPT for piece 1, which is not in flight"):
        flying.take(1, "RECEIPT")
    with pytest.raises(ProtocolError, match="REFUSED for piece 2, which is not in flight"):
        flying.take(2, "REFUSED")
    flying.add(second)
    assert flying.take(2, "RECEIPT") is second, "a number is given once"
    assert flying.take(0, "RECEIPT") is first
    assert flying.added_bytes == first.wire_bytes + 2 * second.wire_bytes
