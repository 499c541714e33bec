"""The last half hour of a few figures, for the page's curves: one look every five seconds, some 30 KB."""

from __future__ import annotations

import itertools
from array import array
from collections import deque

import trio

from appliance.watched import Watched
from storage_driver.named_tuple import NamedTuple

LOOK_S = 5.0
KEPT = 360


class Look(NamedTuple):
    """Running totals and levels at one moment."""

    at_s: float
    messages_in: int
    messages_out: int
    bytes_in: int
    syncs: int
    sync_s: float
    unshipped: int
    connections: int


class History:
    """Looks of the last half hour; rates come from neighbours."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._looks: deque[Look] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await trio.sleep(LOOK_S)

    def look(self) -> None:
        """Take one look."""
        watched = self._watched
        stats, store = watched.tables.stats, watched.store.statistics()
        unshipped = watched.uplink.statistics().unshipped_bytes if watched.uplink else 0
        connections = watched.governor.statistics().connections
        totals = (stats.puts.count, stats.gets.count, stats.puts.size, store.syncs, store.sync_s)
        self._looks.append(Look(trio.current_time(), *totals, unshipped, connections))

    def rates(self, name: str) -> array[float]:
        """Return the growth per second of a total between looks, oldest first."""
        at = Look._fields.index(name)
        looks = list(self._looks)
        pairs = itertools.pairwise(looks)
        return array("d", [(new[at] - old[at]) / max(0.001, new.at_s - old.at_s) for old, new in pairs])

    def levels(self, name: str) -> array[float]:
        """Return a level at each look, oldest first."""
        at = Look._fields.index(name)
        return array("d", [look[at] for look in self._looks])

    def sync_ms(self) -> array[float]:
        """Return the mean duration of a sync between looks, in milliseconds; 0 where there was none."""
        looks = list(self._looks)
        pairs = [(new.sync_s - old.sync_s, new.syncs - old.syncs) for old, new in itertools.pairwise(looks)]
        return array("d", [seconds * 1000 / syncs if syncs else 0.0 for seconds, syncs in pairs])

    @property
    def span_s(self) -> float:
        """The seconds the curves cover."""
        return self._looks[-1].at_s - self._looks[0].at_s if self._looks else 0.0
