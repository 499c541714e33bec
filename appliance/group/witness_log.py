"""The log of a witness: there is none. It votes and keeps one row; the driver is that of a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage_driver.errors import LogFailed

if TYPE_CHECKING:
    from storage_driver.log.commit_log import Writing
    from storage_driver.log.cut_history import CutDone
    from storage_driver.log.lineage import Lineage
    from storage_driver.log.marks import Wake
    from storage_driver.record import Message, MessageQueue
    from storage_driver.segment_copies import SegmentCopies
    from storage_driver.statistics import AppendResult

NO_LOG = "a witness has no log"


class WitnessLog:
    """What a member's driver uses of a store, of a member that stores nothing."""

    first = end = synced = committed = truncations = segment_bytes = dispatched = 0
    failure: str | None = None
    full: str | None = None
    copies: SegmentCopies | None = None

    def __init__(self, lineage: Lineage) -> None:
        self.lineage = lineage

    def put(self, message: Message, /, *, own: bool = False, crc: int | None = None) -> AppendResult:
        """Raises LogFailed."""
        raise LogFailed(NO_LOG)

    def append_raw(self, log_offset: int, data: bytes, /) -> int:
        """Raises LogFailed."""
        raise LogFailed(NO_LOG)

    async def truncate(self, log_offset: int, reason: str, /) -> CutDone | None:
        """Raises LogFailed."""
        raise LogFailed(NO_LOG)

    async def begin_at(self, log_offset: int, /) -> None:
        """Raises LogFailed."""
        raise LogFailed(NO_LOG)

    async def restart_queue(self, topic: str, queue_id: int, /) -> None:
        """Raises LogFailed."""
        raise LogFailed(NO_LOG)

    def read_log(self, start: int, max_bytes: int, /, *, synced: bool = False) -> bytes:
        """Return nothing."""
        return b""

    def when_synced(self, log_offset: int, wake: Wake, /) -> None:
        """Nothing is to be waited for."""
        wake(None)

    def max_offset(self, queue: MessageQueue, /) -> int:
        """Return 0."""
        return 0

    def commit(self, log_offset: int, /) -> None:
        """Others have what is committed."""

    def share(self, synced_to: object, writing: Writing | None = None) -> None:
        """Nothing is ever synced here."""

    def pause_index(self, rests: bool, /) -> None:
        """There is none."""

    def only_copies(self, reason: str | None, /) -> None:
        """It takes no messages anyway."""
