"""What all connections of the process share: admission, bytes in flight, counters, log lines."""

import logging
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import trio

from netstack.serving.limits import NO_PLACE, ConnectionCounts, Limits, LogLimiter, decide, decide_by_descriptor
from netstack.serving.outbox import Unsent
from netstack.serving.slots import ConnectionSlots
from netstack.wire.header_cache import HeaderCache

REFUSED = "refused_"  # with why: access, process, or the limit


class NetStatistics(NamedTuple):
    connections: int
    addresses: int
    bytes_in_flight: int
    partial_bytes: int
    readers_paused: bool
    parked_pulls: int
    counted: Mapping[str, int]  # frames, bytes_in, bytes_out, accepted, refused_…, closed_…


class Governor:
    """One per process, shared by its ports."""

    def __init__(self, limits: Limits | None = None, *, log: logging.Logger | None = None) -> None:
        self.limits = limits or Limits()
        self.counted: Counter[str] = Counter()
        self.parked_pulls = 0
        self.headers = HeaderCache(self.limits.ext_fields)
        self.unsent = Unsent(self.limits.unsent_in_all)
        self.slots = ConnectionSlots()
        self._counts, self._lines = ConnectionCounts(), LogLimiter()
        self._log = log or logging.getLogger("netstack")
        self._in_flight = self._partial = 0
        self._open, self._ids = trio.Event(), 0
        self._partial_room: trio.Event | None = None
        self._open.set()
        self._refusal: str | None = None

    def refuse_all(self, refuse: bool) -> None:
        """Let nobody new in from elsewhere while the process is short of memory or descriptors."""
        self._refusal = "process: short of memory or descriptors" if refuse else None

    def admit(self, address: str, *, descriptor: int = 0, own: bool = False) -> str | None:
        """Return why a connection of this address is refused, or None; an admitted connection calls release once.

        `own`: it comes from this machine, whose watchdog asks so whether requests are answered.
        """
        reason = decide_by_descriptor(descriptor, own, self.limits) or (None if own else self._refusal)
        reason = reason or decide(address, self._counts, trio.current_time(), self.limits)
        if reason is not None and reason.startswith(NO_PLACE) and (given := self.slots.to_give(address)) is not None:
            self.slots.remove(given)
            self.counted["evicted"] += 1
            self.note(
                "connection_evicted", given.site, reason=f"the limit was reached, {address} has fewer connections"
            )
            given.end()
            self._counts.add(address, 0.0, trio.current_time())  # one above the limit for a moment
            reason = None
        if reason is None:
            self.counted["accepted"] += 1
        return reason

    def refused(self, address: str, port: int, reason: str) -> None:
        """Count and log a connection that is not let in; what the reason begins with is the kind."""
        self.counted[REFUSED + reason.partition(":")[0]] += 1
        self.note("connection_refused", address, port=port, reason=reason)

    def release(self, address: str) -> None:
        self._counts.remove(address)

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def take(self, size: int) -> None:
        """Count the bytes of a request whose answer is pending."""
        self._in_flight += size
        if self._in_flight > self.limits.bytes_in_flight and self._open.is_set():
            self._open = trio.Event()

    def give(self, size: int) -> None:
        self._in_flight -= size
        if not self._open.is_set() and self._in_flight <= self.limits.bytes_in_flight * 3 // 4:
            self._open.set()

    @property
    def paused(self) -> bool:
        return not self._open.is_set()

    async def wait_open(self) -> None:
        await self._open.wait()

    def received(self, frames: int, size: int) -> None:
        self.counted["frames"] += frames
        self.counted["bytes_in"] += size

    def hold_partial(self, change: int) -> None:
        """Count bytes of incomplete frames, which have a budget of their own."""
        self._partial += change
        if self._partial_room is not None and not self.partial_full:
            self._partial_room.set()
            self._partial_room = None

    @property
    def partial_full(self) -> bool:
        return self._partial > self.limits.bytes_in_flight // 2

    async def wait_partial(self) -> None:
        """Wait until incomplete frames hold less; the oldest of them are closed by their age."""
        if self._partial_room is None:
            self._partial_room = trio.Event()
        await self._partial_room.wait()

    def note(self, event: str, address: str, **facts: object) -> None:
        """Log one key=value line, at most one per address and event in ten seconds."""
        left_out = self._lines.allows(address, event, trio.current_time())
        if left_out is None:
            return
        pairs = [f"event={event}", f"peer={address}", *(f"{key}={_quoted(value)}" for key, value in facts.items())]
        if left_out:
            pairs.append(f"left_out={left_out}")
        self._log.warning(" ".join(pairs))

    def statistics(self) -> NetStatistics:
        counts = self._counts
        return NetStatistics(
            counts.total,
            len(counts.by_share),
            self._in_flight,
            self._partial,
            self.paused,
            self.parked_pulls,
            MappingProxyType(dict(self.counted)),
        )


def _quoted(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not set(text) & set(" \"'="):
        return text
    return '"' + ascii(text)[1:-1].replace("\\'", "'").replace('"', "'") + '"'  # a codec may still have to be opened
