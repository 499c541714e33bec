"""A landing zone as its readers see it: the manifest of each shard up to its last mark.

A folder is listed once, at the first look; from then on each manifest file names the next one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from uplink_spark.errors import LandingError, ManifestDamaged
from uplink_spark.zone.entry_table import EntryTable
from uplink_spark.zone.files import Files, open_files
from uplink_spark.zone.manifest import LANDING_NAME, ManifestEntry, Zone, decode_zone
from uplink_spark.zone.shard_log import ShardLog

DAY = re.compile(r"\d{4}-\d\d-\d\d")


def status_paths(files: Files, shard: int, *, since: str = "", newest: int | None = None) -> list[str]:
    """Return the newest files below status/<shard> whose names are not before `since`, oldest first.

    On a disk there is one for a day; in a bucket one for a minute, each day's in a folder, so that no day is listed
    that is not asked for. Gateways of earlier versions put them beside these folders.
    """
    folder = f"status/{shard:04x}"
    here = files.names(folder)
    beside = [name for name in here if name.endswith(".jsonl") and name >= since]
    folders = {name for name in here if DAY.fullmatch(name) and name >= since[:10]}
    found = list[str]()
    for day in sorted(folders.union(name[:10] for name in beside), reverse=True):
        if newest is not None and len(found) >= newest:
            break
        found += [name for name in beside if name[:10] == day]
        names = files.names(f"{folder}/{day}") if day in folders else []
        found += [f"{day}/{name}" for name in names if name.endswith(".jsonl") and name >= since]
    found.sort(key=lambda path: path.rpartition("/")[2])
    return found if newest is None else found[-newest:]


def read_zone(files: Files) -> Zone:
    """Return what LANDING says. Raises LandingError while there is none."""
    data = files.read(LANDING_NAME, 0)
    if data is None:
        raise LandingError(
            f"no landing zone at {files.root}: it has no file {LANDING_NAME}; the gateway creates it at first start "
            f"(python -m uplink_spark gateway --landing {shlex.quote(files.root)} --listen HOST:PORT)"
        )
    return decode_zone(data)


class ZoneReader:
    """Every shard of a landing zone. Raises LandingError or ManifestDamaged with the path and the next step."""

    def __init__(self, url: str) -> None:
        self.files = open_files(url)
        self.zone = self._read()
        self.shards = [ShardLog(self.files, shard) for shard in range(self.zone.shards)]

    def _read(self) -> Zone:
        try:
            return read_zone(self.files)
        except ManifestDamaged as error:
            raise LandingError(f"landing zone {self.files.root}: {error}") from error
        except OSError as error:
            told = f"landing zone {self.files.root} cannot be read: {error}"
            raise LandingError(f"{told}; are the URL, the network and the credentials right?") from error

    def check_same(self) -> None:
        """Raise LandingError where the landing zone is not there any more, or another one in its place."""
        now = self._read()
        if now != self.zone:
            was, here = self.zone.landing_id.hex()[:8], now.landing_id.hex()[:8]
            told = f"{self.files.root} was landing zone {was} and is {here} now"
            raise LandingError(f"{told}: mount the former zone and start again")

    def ends(self) -> dict[int, int]:
        """Return the next seq of each shard."""
        return {log.shard: log.refresh() for log in self.shards}

    def begins(self) -> dict[int, int]:
        """Return the oldest seq of each shard that retention has left."""
        self.ends()
        return {log.shard: log.begins() for log in self.shards}

    def entries(self, start: dict[int, int], end: dict[int, int]) -> Iterator[ManifestEntry]:
        """Yield the entries between two positions, shard by shard."""
        for log in self.shards:
            yield from log.entries(start.get(log.shard, 0), end.get(log.shard, 0))

    def tables(self, start: dict[int, int], end: dict[int, int]) -> Iterator[EntryTable]:
        """Yield the same as columns, a file at a time."""
        for log in self.shards:
            yield from log.tables(start.get(log.shard, 0), end.get(log.shard, 0))

    def at_landed(self, landed_ms: int) -> dict[int, int]:
        """Return the position of the first entries landed at or after a time."""
        return {log.shard: log.seq_at_landed(landed_ms) for log in self.shards}
