"""Which follower gets whole segments, and what each of them was offered. Sans I/O.

The rule: where what is left of a segment is on the leader's disk to its end, of one term and LEAST bytes at least, a
follower that has all before fetches it as one file; everything else goes over its link in frames.
"""

from collections.abc import Callable
from typing import Final

from appliance.group.copies.segment_frames import HERE, READ, REFUSED, SegmentFetch, SegmentOffer, SegmentSeen
from storage_driver.named_tuple import NamedTuple

LEAST: Final = 32 << 20  # bytes, or half a segment: twice what may be on its way in frames
SILENT_S: Final = 30.0  # without a word of a follower it gets frames again
AGAIN_S: Final = 60.0  # for so long, also when it refused


class FetchState:
    """One follower that can fetch."""

    def __init__(self) -> None:
        self.offer: SegmentOffer | None = None
        self.reads = False  # it has whole segments of which it has not read all records: frames wait
        self.crc: int | None = None  # of all that was offered, once it was sent
        self.moved = False  # something was sent since the last look
        self.heard_s = self.again_s = 0.0

    def stop(self, again_s: float) -> None:
        """Offer nothing until then."""
        self.offer, self.reads, self.again_s = None, False, again_s


class FetchStep(NamedTuple):
    """Whether frames of the log wait, and what is to be offered."""

    waits: bool
    offer: SegmentOffer | None = None


class SegmentOffers:
    """What a leader knows of its followers' segments."""

    def __init__(self, segment_bytes: int, synced: Callable[[], int]) -> None:
        self._segment_bytes, self._synced = segment_bytes, synced
        self._least = min(LEAST, segment_bytes // 2)
        self._served: dict[str, FetchState] = {}
        self._digests: dict[str, tuple[SegmentOffer, int]] = {}  # of what was sent whole on a link that ended

    def begin(self, member: str) -> None:
        """A follower that can fetch is linked."""
        self._served[member] = FetchState()

    def knows(self, member: str) -> bool:
        """Return whether a member that can fetch is linked: others do not know these frames."""
        return member in self._served

    def forget(self, member: str) -> None:
        """Its link has ended; it may be syncing what it got."""
        served = self._served.pop(member, None)
        if served is not None and served.offer is not None and served.crc is not None:
            self._digests[member] = served.offer, served.crc

    def clear(self) -> None:
        """This member leads no longer: what was offered is not sent any more."""
        self._served = {member: FetchState() for member in self._served}
        self._digests.clear()

    def turn(self, member: str, ships: tuple[int, int], on_disk: int, now_s: float) -> FetchStep:
        """Return what a follower gets next, which may be sent bytes from `ships[0]` to `ships[1]`, of one term."""
        served, start = self._served.get(member), ships[0]
        if served is None or now_s < served.again_s:
            return FetchStep(False)
        if served.moved:
            served.moved, served.heard_s = False, now_s
        if (served.offer is not None or served.reads) and now_s - served.heard_s > SILENT_S:
            served.stop(now_s + AGAIN_S)
            return FetchStep(False)
        if served.offer is not None and served.offer.start == start:
            return FetchStep(True)
        served.offer, end = None, start - start % self._segment_bytes + self._segment_bytes
        if end > min(ships[1], self._synced()) or end - start < self._least:
            return FetchStep(served.reads)
        if on_disk < start:  # what is on its way comes first
            return FetchStep(True)
        served.offer, served.heard_s = SegmentOffer(start, end), now_s
        before = self._digests.pop(member, None)
        served.crc = before[1] if before is not None and before[0] == served.offer else None
        return FetchStep(True, served.offer)

    def seen(self, member: str, seen: SegmentSeen, now_s: float) -> bool:
        """Take what a follower says; return whether what it was offered is on its disk, as it was sent."""
        served = self._served.get(member)
        if served is None:
            return False
        served.heard_s, offer = now_s, served.offer
        if offer is None:
            served.reads = seen.what not in (READ, REFUSED)
        elif offer == (seen.start, seen.end):
            if seen.what == HERE and seen.crc == served.crc:
                served.offer, served.reads = None, True
                return True
            if seen.what in (HERE, REFUSED):
                served.stop(now_s + AGAIN_S)
        return False

    def sends(self, fetch: SegmentFetch) -> FetchState | None:
        """Return whom to send what is fetched, None where it was not offered."""
        served = self._served.get(fetch.member)
        return served if served is not None and served.offer == (fetch.start, fetch.end) else None

    def stands(self, fetch: SegmentFetch, served: FetchState) -> bool:
        """Return whether it is still offered. For threads."""
        return self.sends(fetch) is served
