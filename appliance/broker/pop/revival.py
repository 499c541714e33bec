"""Brings messages again whose time is over: stored once more in their retry topic, or from their place."""

import logging
import math
from collections.abc import Awaitable, Callable

import trio

from appliance.broker.delay.redelivery import RETRY_S, rest_after, wait_kept
from appliance.broker.pop.copies import Copies, source_of
from appliance.broker.pop.pop_queue import CopyPlace, PopKey, Take
from appliance.broker.pop.pop_table import PopTable
from netstack.errors import Refused
from storage_driver.errors import LogFailed, MessageIllegal
from storage_driver.interfaces import MarkedAppending
from storage_driver.journal import JournalFailed
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import StoredMessage

log = logging.getLogger("appliance.broker")

AT_ONCE = 32  # messages of a round, about
ROUNDS = 8  # at a time: what is due while others wait for the disk waits for its own syncs alone


class Expired(NamedTuple):
    """A message whose time is over."""

    take: Take
    offset: int


class Revival:
    """Rounds over what is due; `freed` is told of a queue from which messages come again in their place.

    Before a message is stored again the journal says where (`synced` waits for that): after a crash in between the
    copies that are there tell which messages are done, so that none comes twice.
    """

    def __init__(
        self,
        table: PopTable,
        copies: Copies,
        store: MarkedAppending,
        synced: Callable[[int], Awaitable[None]],
        freed: Callable[[PopKey], None],
    ) -> None:
        self._table, self._copies, self._store, self._synced, self._freed = table, copies, store, synced, freed
        self.copied = self.gone = 0  # messages: stored again, no longer in the log

    async def run(self) -> None:
        """Bring again what is due until cancelled."""
        turns = trio.Semaphore(ROUNDS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._finish_interrupted)
            while True:
                await self._wait_due()
                await turns.acquire()
                expired = self._table.expire(AT_ONCE)
                nursery.start_soon(self._round, [Expired(take, at) for take, left in expired for at in left], turns)

    async def _wait_due(self) -> None:
        """Return when the time of a take is over."""
        while True:
            self._table.sooner = trio.Event()
            due_s = self._table.next_due_s()
            if due_s is not None and due_s <= trio.current_time():
                return
            with trio.CancelScope(deadline=math.inf if due_s is None else due_s):
                await self._table.sooner.wait()

    async def _round(self, expired: list[Expired], turns: trio.Semaphore) -> None:
        try:
            await self._bring(expired)
        finally:
            turns.release()

    async def _finish_interrupted(self) -> None:
        """Find out which copies a crash left, and bring the other messages again."""
        interrupted, starts = self._table.take_interrupted(), dict[str, int]()
        for _, _, place in interrupted:
            starts[place.topic] = min(place.start, starts.get(place.topic, place.start))
        known = {topic: await self._copies.sources(CopyPlace(topic, start)) for topic, start in starts.items()}
        rest = []
        for take, offset, place in interrupted:
            topic, queue_id = take.queue.key.queue
            if source_of(topic, queue_id, offset) in known[place.topic]:
                self._table.moved(take.queue, (offset,))
            else:
                rest.append(Expired(take, offset))
        await self._bring(rest)

    async def _bring(self, expired: list[Expired]) -> None:
        for each in expired:
            if each.take.order:
                self._in_place(each)
        to_copy = [each for each in expired if not each.take.order]
        while to_copy:
            since = self._store.truncations
            try:
                await self._copy_all(to_copy, since)
            except LogFailed as exc:
                await rest_after(exc, "pop_redelivery", self._store)
            except JournalFailed:
                await trio.sleep(RETRY_S)  # the journal told why
            else:
                return

    async def _copy_all(self, expired: list[Expired], since: int) -> None:
        """Store messages again, durably. Raises LogFailed, JournalFailed: then all of them are to be stored again."""
        found = [(each, stored) for each in expired if (stored := await self._find(each)) is not None]
        mark = 0
        for each, stored in found:
            queue = each.take.queue
            mark = self._table.copying(queue, (each.offset,), self._copies.place(queue.key.group, stored))
        if found:
            await self._synced(mark)
        end, copied = 0, list[Expired]()
        for each, stored in found:
            if each.offset in each.take.queue.in_flight:
                try:
                    end = (await self._copies.again(each.take.queue.key.group, stored, each.take.pop_ms)).end
                    copied.append(each)
                except (MessageIllegal, Refused) as exc:  # also where the limit of topics leaves none for it
                    log.warning("event=pop_redelivery_in_place offset=%d reason=%r", each.offset, str(exc))
                    self._in_place(each)
        if end:
            await wait_kept(self._store, end, since)
        self.copied += len(copied)
        for each in copied:
            self._table.moved(each.take.queue, (each.offset,))

    async def _find(self, each: Expired) -> StoredMessage | None:
        """Return a message that is still to be stored again; one that the log no longer has is done."""
        queue = each.take.queue
        if each.offset not in queue.in_flight or each.offset in queue.again:
            return None
        try:
            stored = await self._copies.find(queue.key.queue, each.offset)
        except OSError as exc:
            log.warning("event=pop_redelivery_in_place offset=%d reason=%r", each.offset, str(exc))
            self._in_place(each)
            return None
        if stored is None:
            self.gone += 1
            self._table.moved(queue, (each.offset,))
            return None
        return stored._replace(reconsume_times=stored.reconsume_times + each.take.deliveries)

    def _in_place(self, each: Expired) -> None:
        queue = each.take.queue
        if each.offset in queue.in_flight:
            self._table.bring_again(queue, each.offset, each.take.deliveries + 1)
            self._freed(queue.key)
