"""What all connections of the process share: admission, bytes in flight, counters, log lines."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import trio

from netstack.serving.in_flight import BytesInFlight
from netstack.serving.limits import NO_PLACE, ConnectionCounts, Limits, LogLimiter, decide, decide_by_descriptor
from netstack.serving.outbox import Unsent
from netstack.serving.slots import ConnectionSlots
from netstack.wire.header_cache import HeaderCache

HttpHint = Callable[[str], str]  # the address of the box that somebody came to -> what a browser is told there
REFUSED: Final = "refused_"  # with why: access, process, or the limit


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

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        log: logging.Logger | None = None,
        http_hint: HttpHint | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.http_hint = http_hint
        self.counted: Counter[str] = Counter()
        self.parked_pulls = 0
        self.headers = HeaderCache(self.limits.ext_fields)
        self.unsent = Unsent(self.limits.unsent_in_all)
        self.slots = ConnectionSlots()
        self._counts, self._lines = ConnectionCounts(), LogLimiter()
        self._log = log or logging.getLogger("netstack")
        self.in_flight = BytesInFlight(self.limits.bytes_in_flight)
        self._ids = 0
        self._refusal: str | None = None

    def refuse_all(self, refuse: bool) -> None:
        """Let nobody new in from elsewhere while the process is short of memory or descriptors."""
        self._refusal = "process: short of memory or descriptors" if refuse else None

    def admit(self, address: str, *, descriptor: int = 0, own: bool = False) -> str | None:
        """Return why a connection of this address is refused, or None; an admitted connection calls release once.

        `own`: it comes from this machine, whose watchdog asks so whether requests are answered.
        """
        reason = decide_by_descriptor(descriptor, own, self.limits) or (None if own else self._refusal)
        now = trio.current_time()
        reason = reason or decide(address, self._counts, now, self.limits)
        if reason is not None and reason.startswith(NO_PLACE) and (elsewhere := self.slots.elsewhere()):
            reason = decide(address, self._counts, now, self.limits, elsewhere=elsewhere)
        if reason is not None and reason.startswith(NO_PLACE) and (given := self.slots.to_give(address)) is not None:
            self.slots.remove(given)
            self.counted["evicted"] += 1
            self.note(
                "connection_evicted", given.site, reason=f"the limit was reached, {address} has fewer connections"
            )
            given.end()
            self._counts.add(address, 0.0, now)  # one above the limit for a moment
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

    def received(self, frames: int, size: int) -> None:
        self.counted["frames"] += frames
        self.counted["bytes_in"] += size

    def note(self, event: str, address: str, **facts: object) -> None:
        """Log one key=value line, at most one per address and event in ten seconds."""
        more = self._lines.line_end(address, event, trio.current_time())
        if more is None:
            return
        pairs = [f"event={event}", f"peer={address}", *(f"{key}={_quoted(value)}" for key, value in facts.items())]
        self._log.warning(" ".join(pairs) + more)

    def statistics(self) -> NetStatistics:
        counts = self._counts
        return NetStatistics(
            counts.total,
            len(counts.by_share),
            self.in_flight.pending,
            self.in_flight.partial,
            self.in_flight.paused,
            self.parked_pulls,
            MappingProxyType(dict(self.counted)),
        )


def _quoted(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not set(text) & set(" \"'="):
        return text
    return '"' + ascii(text)[1:-1].replace("\\'", "'").replace('"', "'") + '"'  # a codec may still have to be opened
