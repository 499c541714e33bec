"""What an offset says beside its numbers: of every shard that has something in front of it, while it is there."""

from pathlib import Path

import pytest

from uplink_spark.errors import LandingError
from uplink_spark.spark.offset_fingerprint import check_stamp, stamped
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.wire.batch import PieceSource
from uplink_spark.zone.manifest import shard_of
from uplink_spark.zone.reader import ZoneReader

BOX = {shard_of(f"box-{n}", 2): f"box-{n}" for n in range(8)}  # one of each shard


def test_the_range_in_front_of_each_number_is_named_and_compared(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "landing", shards=2)
    for shard, count in ((0, 1), (1, 2)):
        source, start = PieceSource(BOX[shard], 5, 7, 0, 1, 1), 0
        for _ in range(count):
            piece = log_piece([MadeRecord(body=b"x")], start, source=source)
            landing.land(piece)
            start = piece[0].end
    landing.close()
    zone, here = ZoneReader(str(landing.root)), landing.zone.landing_id.hex()
    ends = zone.ends()
    assert stamped(zone, {0: 0, 1: 0}) == {"0": 0, "1": 0, "zone": here}
    offset = stamped(zone, ends)
    assert offset == {
        "0": 1,
        "1": 2,
        "zone": here,
        "last": {"0": f"seq 0: {BOX[0]} 5 log 0..93", "1": f"seq 1: {BOX[1]} 5 log 93..186"},
    }
    check_stamp(zone, offset)
    check_stamp(zone, {"0": 7})  # of an earlier program
    check_stamp(zone, offset | {"0": 50, "last": {"0": "seq 49: x"}})  # nothing is there to compare with
    other = offset | {"last": {"1": "seq 1: box-9 5 log 93..186"}}
    with pytest.raises(LandingError, match=rf"ends after seq 1: box-9 .* of shard 1, .* has seq 1: {BOX[1]} "):
        check_stamp(zone, other)
    check_stamp(zone, other, back=False)
    with pytest.raises(LandingError, match=f"is of landing zone abcdef01, .* is {here[:8]}: is this"):
        check_stamp(zone, offset | {"zone": "abcdef0123"}, back=False)
