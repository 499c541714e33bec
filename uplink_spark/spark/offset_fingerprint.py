"""What a stream's offset says beside its numbers, so that these never come to mean other rows.

    {"0": 1234, "zone": "<id of the landing zone>", "last": {"0": "seq 1233: box-17 5 log 0..970"}}

`last` is the range in front of each number. An offset without them is one of an earlier program and taken at its word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uplink_spark.errors import LandingError
from uplink_spark.spark.source_plan import Seqs, to_offset
from uplink_spark.zone.manifest import ManifestEntry
from uplink_spark.zone.reader import ZoneReader

ZONE, LAST, LAG = "zone", "last", "lag"


def name_of(entry: ManifestEntry) -> str:
    """What a seq stands for, wherever and whenever it landed."""
    return f"seq {entry.seq}: {entry.box} {entry.epoch:x} {entry.kind} {entry.start}..{entry.end}"


def stamped(zone: ZoneReader, seqs: Seqs) -> dict[str, Any]:
    """Return a position as Spark keeps it, with the zone and the range in front of each number that is still there."""
    found = {shard: _before(zone, shard, seq) for shard, seq in seqs.items()}
    last = {str(shard): name for shard, name in sorted(found.items()) if name is not None}
    return {**to_offset(seqs), ZONE: zone.zone.landing_id.hex(), **({LAST: last} if last else {})}


def check_stamp(zone: ZoneReader, offset: Mapping[str, Any], *, back: bool = True) -> None:
    """Raise LandingError where an offset is of another landing zone, or (back) this one was set back and went on."""
    root, here = zone.files.root, zone.zone.landing_id.hex()
    if offset.get(ZONE, here) != here:
        raise LandingError(
            f"the checkpoint is of landing zone {str(offset[ZONE])[:8]}, {root} is {here[:8]}: is this the landing "
            "zone the checkpoint was made with? Mount that one, or start a new checkpoint for another"
        )
    for shard, known in offset.get(LAST, {}).items() if back else ():
        found = _before(zone, int(shard), int(offset[shard])) if int(shard) < len(zone.shards) else None
        if found is not None and found != known:
            raise LandingError(
                f"the checkpoint ends after {known} of shard {shard}, {root} has {found} there: is this the landing "
                "zone the checkpoint was made with, and not set back to an older copy since? Re-landed data has new "
                "sequence numbers: start a new checkpoint"
            )


def lag_of(zone: ZoneReader, planned: Seqs, ends: Seqs, now_ms: int) -> dict[str, Any]:
    """Return how many ranges are behind a position, and how long ago the oldest of them landed."""
    if not planned:
        return {}
    landed = [
        int(table.numbers["landed_ms"][0])
        for shard, seq in planned.items()
        if seq < ends[shard]
        for table in zone.shards[shard].tables(seq, seq + 1)
    ]
    waiting = sum(max(0, ends[shard] - seq) for shard, seq in planned.items())
    return {LAG: {"ranges": waiting, "seconds": max(0, now_ms - min(landed)) / 1000 if landed else 0.0}}


def _before(zone: ZoneReader, shard: int, seq: int) -> str | None:
    return zone.shards[shard].name_of(seq - 1) if seq else None
