"""Which queues this member of a group holds, kept up to date. Source: RocketMQ 4.9.8 RebalanceImpl."""

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import trio

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import OffsetStore, broker_address, starting_offset
from netstack.client.consume.rebalance import allocate
from netstack.client.consume.subscriptions import Subscriptions
from netstack.client.errors import BrokerRefused, ClientError, StrategyFailed
from netstack.client.instance import Instance
from netstack.client.routes import TopicRoute, any_address
from netstack.errors import Refused
from netstack.wire.bodies import ConsumerIdList, LockReply, LockRequest
from netstack.wire.codes import RequestCode
from netstack.wire.headers import ConsumerGroupHeader
from netstack.wire.json_body import MessageQueue

STUCK_S = 120.0  # a queue without any pull for so long is given up
INCOMPLETE_S = 1.0
LOCK_EVERY_S = 20.0
BUSY_S = 1.0
_log = logging.getLogger("netstack.client")


class Assignment:
    """The rebalance loop: adds and removes queues. `begin` starts pulling a new one."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscriptions: Subscriptions,
        offsets: OffsetStore,
        options: ConsumerOptions,
        *,
        begin: Callable[[HeldQueue], None],
        changed: Callable[[str], None] = lambda topic: None,
    ) -> None:
        self.held: dict[MessageQueue, HeldQueue] = {}
        self._instance, self._group, self._options = instance, group, options
        self._subscriptions, self._offsets = subscriptions, offsets
        self._begin, self._changed = begin, changed
        self._wake = trio.Event()
        self._resets: dict[MessageQueue, int] = {}
        self._locking: set[MessageQueue] = set()  # locked or about to be, and not held yet

    def wake(self) -> None:
        """Look again now."""
        self._wake.set()

    def reset(self, positions: Mapping[MessageQueue, int]) -> None:
        """Drop queues now and start them again from these offsets in the next round, which comes at once."""
        self._resets.update(positions)
        for queue in positions:
            if queue in self.held:
                self.held[queue].drop()
        self.wake()

    def share(self, topic: str) -> int:
        """Return how many queues of the topic this member holds, at least 1."""
        return max(1, sum(queue.topic == topic for queue in self.held))

    async def run(self) -> None:
        """Rebalance at intervals and whenever woken, until cancelled."""
        while True:
            self._wake = trio.Event()
            complete = await self.rebalance()
            with trio.move_on_after(self._options.rebalance_every_s if complete else INCOMPLETE_S):
                await self._wake.wait()

    async def rebalance(self) -> bool:
        """Rebalance all topics once; False when something failed and is to be tried again soon."""
        complete = await self._apply_resets()
        changed = False
        for topic in self._subscriptions.topics:
            try:
                settled, moved = await self._rebalance_topic(topic)
            except StrategyFailed as error:
                _log.error("event=strategy_failed group=%s reason=%s", self._group, error, exc_info=error.__cause__)
                settled, moved = True, False  # soon it would be no better
            except (ClientError, Refused) as error:
                _log.info("event=rebalance_skipped group=%s topic=%s reason=%s", self._group, topic, error)
                settled, moved = False, False
            complete &= settled
            if moved:
                changed = True
                self._subscriptions.touch(topic)
                self._changed(topic)
        for queue in [each for each in self.held if each.topic not in self._subscriptions]:
            complete &= await self._lose(queue)
        if changed:
            await self._instance.heartbeat()
            self._subscriptions.announced()
        return complete

    async def _apply_resets(self) -> bool:
        """Start the queues that were reset from their new offsets; False when some have to wait. Those stay noted."""
        settled = True
        for queue, position in list(self._resets.items()):
            held = self.held.get(queue)
            if held is not None and held.busy:  # an ordered listener still runs
                settled = False
                continue
            if held is not None:
                held.drop()  # a round that was under way when it was reset has begun it again
                self._offsets.set(queue, position)
                await self._offsets.persist([queue])
                self._offsets.forget(queue)
                del self.held[queue]
            if self._resets.get(queue) == position:  # else it was reset once more meanwhile
                del self._resets[queue]
        return settled

    async def _rebalance_topic(self, topic: str) -> tuple[bool, bool]:
        """Return (all settled, something changed)."""
        route = await self._instance.route(topic)
        if self._options.broadcasting:
            return await self._apply(topic, route.subscribe)
        return await self._apply(topic, self._allocate(route, await self._members(route)))

    def try_strategy(self, route: TopicRoute) -> None:
        """Ask the strategy once what a lone member would get, so that a consumer it cannot serve fails at once.

        Raises StrategyFailed.
        """
        if not self._options.broadcasting:
            self._allocate(route, [self._instance.client_id])

    def _allocate(self, route: TopicRoute, members: Sequence[str]) -> Sequence[MessageQueue]:
        strategy = self._options.strategy
        try:
            return list(allocate(strategy, self._instance.client_id, route.subscribe, members))
        except Exception as error:  # the application's code
            raise StrategyFailed(strategy.name, route.topic, error) from error

    async def _members(self, route: TopicRoute) -> Sequence[str]:
        """Return the ids of all members as a random broker of the topic knows them. Raises ClientError, Refused."""
        address = any_address(route.brokers, random.choice(sorted(route.brokers))) if route.brokers else None
        if address is None:
            raise ClientError(f"no broker of {route.topic} has an address")
        answer = await self._instance.ask(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(self._group)
        )
        if answer.code:
            await self._instance.heartbeat([address])  # it may have been restarted
            raise BrokerRefused(address, answer.code, answer.remark, "list of members")
        return ConsumerIdList.from_bytes(answer.body).consumer_id_list

    async def _apply(self, topic: str, mine: Sequence[MessageQueue]) -> tuple[bool, bool]:
        settled, changed = True, False
        wanted, now = frozenset(mine), trio.current_time()
        for queue, held in list(self.held.items()):
            if queue.topic != topic:
                continue
            stuck = now - held.pulled_at > STUCK_S and not held.paused
            if queue not in wanted or held.dropped or stuck:
                changed = True
                settled &= await self._lose(queue)
        for queue in mine:
            if queue not in self.held:
                taken = await self._take(queue)
                settled &= taken
                changed |= taken
        return settled, changed

    async def _take(self, queue: MessageQueue) -> bool:
        """Start a queue: lock it if ordered, find its first offset. False when that has to wait."""
        locked = False
        if self._ordered:
            self._locking.add(queue)
            locked = queue in await self._lock(queue.broker_name, [queue])
            if not locked:
                self._locking.discard(queue)
                return False
        self._offsets.forget(queue)
        try:
            start = await starting_offset(self._instance, queue, self._offsets, self._options)
        except ClientError as error:
            _log.warning("event=queue_not_started queue=%s reason=%s", queue, error)
            if locked:
                await self._unlock(queue.broker_name, [queue])
                self._locking.discard(queue)
            return False
        held = self.held[queue] = HeldQueue(queue, start)
        self._locking.discard(queue)
        if locked:
            held.lock.taken_at = trio.current_time()
        self._begin(held)
        return True

    async def _lose(self, queue: MessageQueue) -> bool:
        """Give a queue back; False while its ordered listener still runs."""
        held = self.held[queue]
        held.drop()
        if held.busy:
            with trio.move_on_after(BUSY_S):
                await held.wait_until(lambda: not held.busy)
            if held.busy:
                return False
        await self._offsets.persist([queue])
        self._offsets.forget(queue)
        if self._ordered:
            await self._unlock(queue.broker_name, [queue])
        del self.held[queue]
        return True

    # --- locks of ordered consumption

    @property
    def _ordered(self) -> bool:
        return self._options.orderly and not self._options.broadcasting

    async def _lock(self, broker_name: str, queues: Sequence[MessageQueue]) -> frozenset[MessageQueue]:
        """Return which of the queues of one broker are locked for us now."""
        body = LockRequest(self._instance.client_id, self._group, tuple(queues)).to_bytes()
        try:
            address = broker_address(self._instance, queues[0])
            answer = await self._instance.ask_ok(address, RequestCode.LOCK_BATCH_MQ, None, body, timeout_s=1.0)
            return frozenset(LockReply.from_bytes(answer.body).locked)
        except (ClientError, Refused) as error:
            _log.warning("event=lock_failed broker=%s queues=%d reason=%s", broker_name, len(queues), error)
            return frozenset()

    async def _unlock(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        body = LockRequest(self._instance.client_id, self._group, tuple(queues)).to_bytes()
        try:
            await self._instance.tell(
                broker_address(self._instance, queues[0]), RequestCode.UNLOCK_BATCH_MQ, None, body
            )
        except ClientError as error:
            _log.warning("event=unlock_failed broker=%s reason=%s", broker_name, error)

    async def keep_locks(self) -> None:
        """Renew the locks of all held queues, broker by broker, until cancelled."""
        while True:
            await trio.sleep(LOCK_EVERY_S)
            await self.lock_all()

    async def lock_all(self) -> None:
        for broker_name, queues in _by_broker(self.held).items():
            locked = await self._lock(broker_name, queues)
            for queue in queues:
                held = self.held.get(queue)
                if held is None:
                    continue
                if queue in locked:
                    held.lock.take()
                else:
                    held.lock.lose()
                held.change()

    # --- the end

    async def leave(self) -> None:
        """Persist all offsets and unlock, in parallel per broker; the caller gives a deadline."""
        for held in self.held.values():
            held.drop()
        for queue, position in self._resets.items():  # that no round came to any more
            if queue in self.held:
                self._offsets.set(queue, position)
        await self._offsets.persist(list(self.held))
        if self._ordered:
            for broker_name, queues in _by_broker({*self.held, *self._locking}).items():
                await self._unlock(broker_name, queues)
        self.held.clear()


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
