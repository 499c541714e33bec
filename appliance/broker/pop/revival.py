"""Brings messages again whose time is over: stored once more in their retry topic, or from their place."""

import logging
import math
from collections.abc import Callable

import trio

from appliance.broker.delay.redelivery import rest_after, wait_kept
from appliance.broker.pop.copies import Copies
from appliance.broker.pop.pop_queue import PopKey, Take
from appliance.broker.pop.pop_table import PopTable
from storage_driver.errors import LogFailed, MessageIllegal
from storage_driver.interfaces import MarkedAppending

log = logging.getLogger("appliance.broker")

AT_ONCE = 256  # messages between two waits for the log


class Revival:
    """One loop over what is due; `freed` is told of a queue from which messages come again in their place."""

    def __init__(
        self, table: PopTable, copies: Copies, store: MarkedAppending, freed: Callable[[PopKey], None]
    ) -> None:
        self._table, self._copies, self._store, self._freed = table, copies, store, freed
        self.copied = self.gone = 0  # messages: stored again, no longer in the log

    async def run(self) -> None:
        """Bring again what is due until cancelled."""
        while True:
            self._table.sooner = trio.Event()
            due_s = self._table.next_due_s()
            if due_s is None or due_s > trio.current_time():
                with trio.CancelScope(deadline=math.inf if due_s is None else due_s):
                    await self._table.sooner.wait()
                continue
            await self._bring(self._table.expire(AT_ONCE))

    async def _bring(self, expired: list[tuple[Take, list[int]]]) -> None:
        to_copy: list[tuple[Take, list[int]]] = []
        for take, offsets in expired:
            if take.order:
                self._in_place(take, offsets)
            else:
                to_copy.append((take, offsets))
        while to_copy:
            since = self._store.truncations
            try:
                end = await self._copy_all(to_copy)
                if end:
                    await wait_kept(self._store, end, since)
            except LogFailed as exc:
                for take, offsets in to_copy:
                    self._table.not_moved(take, [offset for offset in offsets if offset in take.queue.in_flight])
                await rest_after(exc, "pop_redelivery", self._store)
                continue
            for take, offsets in to_copy:
                self._table.moved(take.queue, [offset for offset in offsets if offset not in take.queue.again])
            return

    async def _copy_all(self, takes: list[tuple[Take, list[int]]]) -> int:
        """Store messages again; return where the last copy ends, 0 when there was none. Raises LogFailed."""
        end = 0
        for take, offsets in takes:
            for offset in offsets:
                end = await self._copy(take, offset) or end
        return end

    async def _copy(self, take: Take, offset: int) -> int:
        queue = take.queue
        if offset not in queue.in_flight or offset in queue.again:
            return 0
        try:
            stored = await self._copies.find(queue.key.queue, offset)
            if stored is None:
                self.gone += 1
                return 0
            placed = await self._copies.again(queue.key.group, stored, take.pop_ms)
        except (MessageIllegal, OSError) as exc:
            log.warning("event=pop_redelivery_in_place queue=%s offset=%d reason=%r", queue.key, offset, str(exc))
            self._in_place(take, [offset])
            return 0
        self.copied += 1
        self._table.moving(queue, offset, placed.end)
        return placed.end

    def _in_place(self, take: Take, offsets: list[int]) -> None:
        for offset in offsets:
            self._table.bring_again(take.queue, offset, take.deliveries + 1)
        self._freed(take.queue.key)
