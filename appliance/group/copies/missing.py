"""What a copy has not: how many acknowledged messages, which its leader counts and tells, and since when."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import trio

from appliance.group.copies.lag import LogAges
from appliance.group.links.frames import MISSING, LinkFrame, encode_frame, typed
from storage_driver.consensus.effects import FollowerProgress
from storage_driver.errors import RecordDamaged
from storage_driver.log.cut_history import GROUP_TOPICS
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK, MessageQueue, parse_record

MOST_NOTES: Final = 4096  # each is a batch at first
TELL_S: Final = 0.25
MOST_COUNTED: Final = 64 << 20  # bytes: four times what may be on its way
OWN_QUEUES: Final = tuple(MessageQueue(topic, 0) for topic in GROUP_TOPICS)


class Missing(NamedTuple):
    """So many acknowledged messages, about, lie between a copy's end and what is committed."""

    synced: int  # of the copy, as the leader knew it
    committed: int
    messages: int


NOTHING: Final = Missing(0, 0, 0)


def decode_missing(frame: LinkFrame) -> Missing:
    """Return MISSING. Raises ProtocolError."""
    fields = frame.fields("MISSING")
    return typed("MISSING", lambda: Missing(*[fields.uint(name) for name in Missing._fields]))


class CountedLog(Protocol):
    """A store, as far as its messages are counted."""

    @property
    def synced(self) -> int: ...
    @property
    def dispatched(self) -> int: ...
    def max_offset(self, queue: MessageQueue, /) -> int: ...
    def read_log(self, start: int, max_bytes: int, /, *, synced: bool = False) -> bytes: ...


class MissingMessages:
    """A leader's notes of how many messages it had committed at which log offset; what a follower heard of its own."""

    def __init__(self, ages: LogAges) -> None:
        self.ages = ages
        self._notes = deque[tuple[int, int]]()  # log offset, messages below it; both rise
        self._due_s = 0.0
        self.noted_s = 0.0  # when it was last looked what copies lack
        self.led_s: float | None = None  # when this member last led
        self._told = set[str]()  # members that have not everything, as they were told
        self._heard = NOTHING

    def clear(self) -> None:
        """Another member leads, or this one."""
        self._notes.clear()
        self._told.clear()
        self._heard = NOTHING

    # ---- a leader's

    def note(self, committed: int, messages: int) -> None:
        """So many messages are committed below a log offset."""
        notes = self._notes
        if notes and notes[-1][0] >= committed:
            return
        notes.append((committed, messages))
        if len(notes) > MOST_NOTES:  # of the older ones every second goes: they count less exactly then
            kept, half = list(notes), MOST_NOTES // 2
            self._notes = deque([*kept[:half:2], *kept[half:]])

    def frames(self, now_s: float, progress: Callable[[], Sequence[FollowerProgress]]) -> Iterator[tuple[str, bytes]]:
        """Yield what followers are to be told now, with whom."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + TELL_S
        for each in progress():
            if (frame := self.frame(each.member, each.synced)) is not None:
                yield each.member, frame

    def frame(self, member: str, synced: int) -> bytes | None:
        """Return what a follower is to be told, None while it has everything and knows it."""
        missing = self._beyond(synced)
        if not missing.messages and member not in self._told:
            return None
        (self._told.add if missing.messages else self._told.discard)(member)
        return encode_frame(MISSING, missing._asdict())

    def _beyond(self, synced: int) -> Missing:
        """Return how many messages a copy that ends at a log offset has not; within a batch they count by its bytes."""
        if not self._notes or self._notes[-1][0] <= synced:
            return Missing(synced, synced, 0)
        committed, messages = above, have = self._notes[-1]  # what was before the first note is not known
        for log_offset, below in reversed(self._notes):
            if log_offset <= synced:
                have -= -((have - below) * (synced - above) // (above - log_offset))
                break
            above, have = log_offset, below
        return Missing(synced, committed, messages - have)

    # ---- a follower's

    def heard(self, missing: Missing) -> None:
        """The leader told this."""
        self._heard = missing

    def got(self, synced: int) -> tuple[int, int]:
        """Return log offset and length of what this copy has got since it was told."""
        heard = self._heard
        return heard.synced, min(MOST_COUNTED, max(0, synced - heard.synced)) if heard.messages else 0

    def messages(self, synced: int, got: int) -> int:
        """Return how many this copy has not, about, with what it has got since it was told."""
        return max(0, self._heard.messages - got) if synced < self._heard.committed else 0

    async def lost(self, log: CountedLog, *, limiter: trio.CapacityLimiter) -> int:
        """Return how many acknowledged messages this copy has not, about, as far as its leader has told."""
        synced = log.synced
        start, length = self.got(synced)

        def count() -> int:
            return count_messages(log.read_log(start, length, synced=True), start) if length else 0

        try:
            return self.messages(synced, await trio.to_thread.run_sync(count, limiter=limiter))
        except OSError:
            return self.messages(synced, 0)


def messages_of_clients(log: CountedLog) -> int:
    """Return how many messages of clients are committed, plus a number that stays as long as the process runs."""
    return log.dispatched - sum(map(log.max_offset, OWN_QUEUES))


def count_messages(data: bytes, log_offset: int) -> int:
    """Return how many messages of clients there are in whole records; damage and what is behind it are left out."""
    return sum(topic not in GROUP_TOPICS for topic in _topics(data, log_offset))


def _topics(data: bytes, log_offset: int) -> Iterator[str]:
    at = 0
    while len(data) - at >= BLANK_BYTES and BLANK.unpack_from(data, at)[1] != MAGIC_BLANK:
        try:
            entry = parse_record(data, at, log_offset + at, check_crc=False)
        except RecordDamaged:
            return
        yield entry.topic
        at += entry.size
