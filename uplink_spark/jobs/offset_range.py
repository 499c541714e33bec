"""What a batch of `foreachBatch` contains, as offsets of the landing zone: for sinks that keep a position of their own.

    def write(batch, number):
        found = offset_range("/srv/checkpoint", number)
        batch.write.format("delta").mode("append").option("txnAppId", "vitals").option("txnVersion", found.version)...

Spark gives `foreachBatch` a number that begins at 0 again with a new checkpoint: as `txnVersion` it would make Delta
leave out new rows. The sum of the offsets grows with every batch that has rows, whichever checkpoint it comes from.
Spark writes the offsets of a batch into the checkpoint before the batch runs, so they are there, also when it runs
again.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from uplink_spark.errors import ConfigError
from uplink_spark.spark.offset_fingerprint import LAST, ZONE
from uplink_spark.zone.files import open_files


class OffsetRange(NamedTuple):
    """Which seqs of each shard a batch contains: start <= seq < end."""

    start: dict[str, int]  # empty for a checkpoint's first batch
    end: dict[str, int]
    text: str  # where it ends, as option startingOffsets takes it

    @property
    def version(self) -> int:
        """A number that is larger for every later batch, also of another checkpoint that went on from `text`."""
        return sum(self.end.values())


def offset_range(checkpoint: str, batch: int, *, source: int = 0) -> OffsetRange:
    """Return what batch number `batch` of a stream contains. Raises ConfigError.

    source: the place of `commitlog` among the sources of the query, where it has several.
    """
    end = _offset(checkpoint, batch, source)
    if end is None:
        raise ConfigError(f"checkpoint {checkpoint} has no offsets of batch {batch}: is it the one of this query?")
    return OffsetRange(_seqs(_offset(checkpoint, batch - 1, source) or {}), _seqs(end), json.dumps(end))


def finished(checkpoint: str) -> dict[str, int]:
    """Return where the newest finished batch of a stream's only source ends, nothing for a new checkpoint."""
    numbers = [int(name) for name in open_files(checkpoint).names("commits") if name.isdigit()]
    return _seqs(_offset(checkpoint, max(numbers), 0) or {}) if numbers else {}


def _offset(checkpoint: str, batch: int, source: int) -> dict[str, Any] | None:
    """Return the offset that Spark noted (OffsetSeqLog: version, metadata, then a line for each source)."""
    data = open_files(checkpoint).read(f"offsets/{batch}", 0)
    if data is None:
        return None
    lines = data.decode().splitlines()
    if len(lines) < 3 + source or not lines[0].startswith("v"):
        raise ConfigError(f"checkpoint {checkpoint}: batch {batch} has no offset of source {source}")
    offset: dict[str, Any] = json.loads(lines[2 + source])
    return offset


def _seqs(offset: dict[str, Any]) -> dict[str, int]:
    return {shard: int(seq) for shard, seq in offset.items() if shard not in (ZONE, LAST)}
