"""What others ask of a store, in slices: whoever takes a store says which of them it needs."""

from collections.abc import Callable, Sequence
from typing import Protocol

from storage_driver.log.marks import Wake
from storage_driver.log.segment import SegmentFacts
from storage_driver.reading import ReadRequest, ReadResult
from storage_driver.record import Message, MessageQueue, Parts
from storage_driver.statistics import AppendResult, BatchAppendResult


class Appending(Protocol):
    """Takes messages. Raises Full, LogFailed, MessageIllegal, Busy."""

    @property
    def full(self) -> str | None: ...
    def put(self, message: Message, /, *, own: bool = False, crc: int | None = None) -> AppendResult: ...
    def put_batch(
        self, shared: Message, parts: Parts, /, *, crcs: Sequence[int] | None = None
    ) -> BatchAppendResult: ...


class Policies(Protocol):
    """When senders are answered whose topic has an acknowledgement policy of its own."""

    def when(self, policy: str, /) -> Callable[[int, Wake], None]:
        """Return what does what `when_acknowledged` does, by such a policy."""

    def reached(self, policy: str, /) -> int:
        """Return the log offset up to which they have been answered."""

    def why_not(self, policy: str, /) -> str:
        """Return why nothing can be taken under such a policy now, "" when it can."""


class Marks(Protocol):
    """How far the log goes, and how far it is safe."""

    @property
    def policies(self) -> Policies | None: ...
    @property
    def first(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def truncations(self) -> int: ...
    @property
    def failure(self) -> str | None: ...
    def when_committed(self, log_offset: int, wake: Wake, /) -> None: ...
    def when_acknowledged(self, log_offset: int, wake: Wake, /) -> None:
        """Do what `when_committed` does, for an answer to a client, which does not wait for ever."""

    async def wait_committed(self, log_offset: int, /) -> None: ...


class Queues(Protocol):
    """Which queues there are, and which numbers their messages have."""

    def topics(self) -> list[str]: ...
    def queues(self, topic: str) -> list[int]: ...
    def has_queue(self, queue: MessageQueue) -> bool: ...
    def min_offset(self, queue: MessageQueue) -> int: ...
    def max_offset(self, queue: MessageQueue) -> int: ...


class Reading(Queues, Protocol):
    """Gives messages back, from memory or from the disk. Raises OSError."""

    def read_hot(self, wanted: ReadRequest, /) -> ReadResult | None: ...
    async def read(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        max_count: int,
        max_bytes: int,
        accepts: Callable[[int], bool] | None = None,
        accepts_record: Callable[[memoryview], bool] | None = None,
    ) -> ReadResult: ...
    async def record_at(self, log_offset: int, size: int | None = None) -> bytes | None: ...
    async def offset_by_time(self, queue: MessageQueue, time_ms: int, *, boundary: str = "nearest") -> int: ...
    def age_ms(self, log_offset: int, stored_ms: int, /) -> int: ...
    async def stored_ms_at(self, queue: MessageQueue, queue_offset: int) -> int | None: ...
    async def find_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[bytes]: ...
    def read_log(self, start: int, max_bytes: int) -> bytes: ...
    def segments(self) -> list[SegmentFacts]: ...


class MarkedAppending(Appending, Marks, Protocol):
    """Takes messages and says when they are safe."""


class MarkedReading(Reading, Marks, Protocol):
    """Gives messages back and says how far the log goes."""


class Messages(Appending, Reading, Marks, Protocol):
    """All that has to do with messages."""
