"""Where a query begins and ends in a landing zone, and what of that the zone keeps for it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from uplink_spark.errors import LandingError
from uplink_spark.spark.offset_fingerprint import check_stamp
from uplink_spark.spark.source_options import OptionError, SourceOptions, SourcePosition
from uplink_spark.spark.source_plan import Seqs, resolve, to_offset
from uplink_spark.zone.reader import ZoneReader


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def positions(zone: ZoneReader, options: SourceOptions, position: SourcePosition) -> Seqs:
    """Return the seq of each shard a position stands for, checked against what is still there."""
    at_landed = None if position.landed_ms is None else zone.at_landed(position.landed_ms)
    oldest = zone.begins()
    check_stamp(zone, position.stamp or {}, back=options.fail_on_loss)
    seqs = resolve(position, oldest, zone.ends(), at_landed)
    return checked_start(zone, options, seqs, oldest)


def checked_start(zone: ZoneReader, options: SourceOptions, seqs: Seqs, oldest: Seqs) -> Seqs:
    """Return seqs, or where retention has removed some of it: an error, or the oldest that is left."""
    gone = {shard: (seq, oldest[shard]) for shard, seq in seqs.items() if seq < oldest[shard]}
    if gone and options.fail_on_loss:
        shard, (seq, first) = next(iter(gone.items()))
        raise LandingError(
            f"shard {shard} of {zone.files.root} begins at seq {first}, this query needs {seq}: retention at "
            "the centre removed it; read the bronze table, or continue from the oldest with failOnDataLoss=false"
        )
    return {shard: max(seq, oldest[shard]) for shard, seq in seqs.items()}


def save_consumer(zone: ZoneReader, name: str, seqs: Mapping[int, int]) -> None:
    """Write consumers/<name>.json: packs at and above these positions stay, the gateway's retention reads it."""
    body = {"v": 1, "consumer": name, "offsets": to_offset(seqs), "updated_ms": now_ms()}
    zone.files.replace(f"consumers/{name}.json", json.dumps(body, sort_keys=True).encode())


def check_order(start: Seqs, end: Seqs) -> None:
    """Raise OptionError where a shard is to be read backwards."""
    for shard, seq in start.items():
        if seq > end[shard]:
            told = f"the query begins at seq {seq} of shard {shard} and ends at {end[shard]}"
            raise OptionError(f"{told}: start is after end, no row matches")
