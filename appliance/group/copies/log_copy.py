"""A follower's log: takes the leader's records, cuts what the leader does not have, looks at what it wrote.

What was appended is synced by the log's own thread; some of it is read back then and compared with what had come.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

from appliance.group.copies.common_point import CommonPoint, differs
from appliance.group.copies.cut_news import CutNews
from appliance.group.driver import Divergence
from storage_driver.consensus.effects import LogCut
from storage_driver.consensus.members import Members
from storage_driver.consensus.messages import Append
from storage_driver.crc import crc32
from storage_driver.errors import Full, LogFailed, MessageIllegal, NotNext, QueueRestarted, RecordDamaged, StoreRefused
from storage_driver.log.cut_history import CutDone
from storage_driver.named_tuple import NamedTuple

if TYPE_CHECKING:
    from storage_driver.log.marks import Wake

log = logging.getLogger("appliance.group")
READ_BACK_EVERY: Final = 16  # appends; what is read is in memory mostly, so it costs little and shows little
MOST_WAITING: Final = 64
ANSWER_S: Final = 0.5  # who asked hears of it before the process ends


class FollowerLog(Protocol):
    """The part of a store that copies another log."""

    @property
    def end(self) -> int: ...
    @property
    def synced(self) -> int: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def full(self) -> str | None: ...
    @property
    def first(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    def append_raw(self, log_offset: int, data: bytes, /) -> int: ...
    def when_synced(self, log_offset: int, wake: Wake, /) -> None: ...
    def read_log(self, start: int, max_bytes: int, /, *, synced: bool = False) -> bytes: ...
    async def truncate(self, log_offset: int, reason: str, /) -> CutDone | None: ...
    async def begin_at(self, log_offset: int, /) -> None: ...
    async def restart_queue(self, topic: str, queue_id: int, /) -> None: ...


class _Written(NamedTuple):
    """Bytes that are to be read back once they are synced."""

    start: int
    length: int
    crc: int


class CopyFailed(Exception):
    """This disk does not hold what it was given; the member takes no part any more."""


class LogShrunk(StoreRefused):
    """The disk did not take what was appended, and the core knows of it: the next start sees where the log ends."""


class LogUnread(StoreRefused):
    """A box that is to lead has not read the end of its log; the next start does, and others elect one meanwhile."""


class CutAtStart(StoreRefused):
    """The next start cuts the log below what was committed here; this process has to end for that."""


class CopyGivenUp(StoreRefused):
    """The next start takes the copy anew; this process has to end for that."""


BeginAgain = Callable[[Members, bool], None]
"""(members, discard): have the next start give the copy up. Blocks."""
BeginCut = Callable[[int, int, str], None]
"""(log offset, end, reason): have the next start take that range out of the log. Blocks."""


def divergence_of(cut: CutDone) -> Divergence:
    """Return what is told of a cut."""
    return Divergence(cut.log_offset, cut.end, cut.at_ms, ", ".join(cut.quarantined), cut.messages)


class LogCopy:
    """Changes one store as its leader says."""

    def __init__(
        self,
        store: FollowerLog,
        begin_cut: BeginCut,
        cuts: Sequence[CutDone] = (),
        begin_again: BeginAgain | None = None,
        *,
        unread: Callable[[], bool] = lambda: False,
    ) -> None:
        """unread: whether the log has records that nobody has read yet; nothing is appended then."""
        self.cuts, self.news = list(cuts), CutNews()  # of this log, the newest last
        self.refused = ""  # why the last append was not taken
        self._store, self._begin_cut, self._begin_again = store, begin_cut, begin_again
        self._unread = unread
        self._given_up = False  # the next start takes the copy anew
        self._appends = 0
        self._written: deque[_Written] = deque()
        self.common: CommonPoint | None = None  # as the leader said last
        self._restarted: tuple[str, int] | None = None  # a queue that is to go before its records come again
        self._work = trio.Event()
        self._reading = trio.CapacityLimiter(1)

    @property
    def divergence(self) -> Divergence | None:
        """The last cut."""
        return divergence_of(self.cuts[-1]) if self.cuts else None

    def append(self, append: Append, data: bytes) -> int | None:
        """Append records; return the log offset behind them, None when they were not taken: they come again.

        So do those from a queue on that begins again.
        """
        if self._restarted is not None or self._unread():
            return None
        try:
            if self._store.full is not None:
                raise Full(self._store.full)
            end = self._store.append_raw(append.start, data)
        except QueueRestarted as exc:
            self._restarted = exc.topic, exc.queue_id
            self._work.set()
            return exc.log_offset if exc.log_offset > append.start else None
        except (NotNext, RecordDamaged, MessageIllegal, LogFailed, Full) as exc:
            if str(exc) != self.refused:
                log.warning("event=append_refused start=%d length=%d reason=%r", append.start, append.length, str(exc))
            self.refused = str(exc)
            return None
        self.refused = ""
        self._appends += 1
        if not self._appends % READ_BACK_EVERY and len(self._written) < MOST_WAITING:
            self._written.append(_Written(append.start, len(data), append.crc))
            self._store.when_synced(append.start + len(data), lambda reason: self._work.set())
        return end

    async def cut(self, cut: LogCut) -> None:
        """Do a cut; what it takes away is in quarantine/ then.

        Raises LogFailed, OSError, ValueError, CutAtStart, CopyFailed where the bytes below are not the leader's.
        """
        if cut.restart:
            await self._store.begin_at(cut.log_offset)
            return
        await self._wait_synced(cut.log_offset)
        await self._compare(cut.log_offset)
        end = self._store.end
        if cut.below_committed:
            await trio.to_thread.run_sync(self._begin_cut, cut.log_offset, end, cut.reason, limiter=self._reading)
            log.critical("event=committed_log_cut start=%d end=%d reason=%r", cut.log_offset, end, cut.reason)
            raise CutAtStart(
                f"{cut.reason}, and this box had acknowledged {end - cut.log_offset} bytes there. It ends: the next "
                f"start keeps them in quarantine/ and cuts the log at {cut.log_offset}"
            )
        done = await self._store.truncate(cut.log_offset, cut.reason)
        self._written.clear()
        if done is not None:
            self.cuts.append(done)
            log.error(
                "event=log_cut start=%d end=%d messages=%d reason=%r quarantine=%r next_step=rocketbox_fsck_--salvage",
                *(cut.log_offset, done.end, done.messages, cut.reason, divergence_of(done).quarantine),
            )

    async def give_up(self, members: Members, *, discard: bool) -> None:
        """Have the next start take the copy anew; soon `run` ends with CopyGivenUp. Raises OSError."""
        assert self._begin_again is not None, "a witness has no copy"
        await trio.to_thread.run_sync(self._begin_again, members, discard, limiter=self._reading)
        self._given_up = True
        self._work.set()

    async def _compare(self, log_offset: int) -> None:
        point, self.common = self.common, None
        if point is None or point.log_offset != log_offset:
            return
        if await trio.to_thread.run_sync(differs, self._store, point, limiter=self._reading):
            text = f"{point.length} bytes below {log_offset} are not those of the leader: one of the two is damaged"
            raise CopyFailed(
                f"{text}. Nothing was cut: check both with `rocketbox fsck`, then `rocketbox replica resync`"
            )

    async def _wait_synced(self, log_offset: int) -> None:
        done = trio.Event()
        self._store.when_synced(log_offset, lambda reason: done.set())
        await done.wait()

    async def run(self) -> None:
        """Read back and delete queues until cancelled. Raises CopyFailed, CopyGivenUp."""
        while True:
            await self._work.wait()
            self._work = trio.Event()
            if self._given_up:
                await trio.sleep(ANSWER_S)
                raise CopyGivenUp("this process ends: the next start gives the copy up and takes the leader's")
            if self._restarted is not None:
                await self._restart(*self._restarted)
                self._restarted = None
            while self._written and self._written[0].start + self._written[0].length <= self._store.synced:
                await self._read_back(self._written.popleft())

    async def _restart(self, topic: str, queue_id: int) -> None:
        """Delete a queue, as the leader did before its next records. Where the disk has no room they come again."""
        try:
            await self._store.restart_queue(topic, queue_id)
        except OSError as exc:
            self.refused = f"queue {queue_id} of {topic} cannot be deleted: {exc}"
            log.warning("event=queue_not_restarted topic=%s queue=%d reason=%r", topic, queue_id, str(exc))

    async def _read_back(self, written: _Written) -> None:
        start, length, crc = written

        def read() -> int:
            data = self._store.read_log(start, length, synced=True)
            return crc32(data) if data else crc  # deleted, or cut meanwhile

        try:
            found = await trio.to_thread.run_sync(read, limiter=self._reading)
        except OSError as exc:
            raise CopyFailed(f"{length} bytes at {start} cannot be read back: {exc}") from exc
        if found != crc and self._store.synced >= start + length:
            raise CopyFailed(f"{length} bytes at {start} are not those that were written")
