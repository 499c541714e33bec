"""Heartbeats, leaving, membership, queue locks (34, 35, 38, 41, 42, 46); members hear that their group changed (40).

Source: RocketMQ 4.9.8 ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor.
"""

import logging
from collections.abc import Callable

import trio

from appliance.broker.consume.heartbeat import QueueLockRequest, lock_reply, read_check, read_heartbeat, read_lock
from appliance.broker.consume.queue_locks import QueueLocks
from appliance.broker.filter.subscriptions import SubscriptionError
from appliance.broker.large_bodies import read_in_thread
from appliance.broker.rights import owner_of
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.clients import ClientTable, Joining, Library, Member
from appliance.broker.tables.compile_pace import CompilePace
from appliance.broker.tables.groups import GroupTable, is_group_name
from appliance.broker.tables.shares import counted_for
from appliance.broker.tables.topics import RETRY_PREFIX, TopicTable
from appliance.requests import LARGE, Answer, AsyncReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import ConsumerGroupHeader, UnregisterClientHeader
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance.broker")

CALM_S = 0.02  # a thousand members that join at once cause some notifications each, not a thousand
SCAN_S = 10.0


class SessionTables(NamedTuple):
    """State that heartbeats read and change."""

    topics: TopicTable
    groups: GroupTable
    clients: ClientTable
    locks: QueueLocks
    arrivals: Arrivals
    compile_pace: CompilePace


class Sessions:
    """Handles heartbeats and membership; one object per broker."""

    def __init__(
        self, tables: SessionTables, *, broker: str, now_ms: Callable[[], int], property_filter: bool, notify: bool
    ) -> None:
        self._tables, self._broker, self._now_ms = tables, broker, now_ms
        self._property_filter, self._notify = property_filter, notify
        self._changed: set[str] = set()
        self._work = trio.Event()
        tables.clients.changed = self._note_change
        tables.clients.resubscribed = tables.arrivals.release

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        return {
            RequestCode.HEART_BEAT: self.handle_heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.handle_unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.handle_members,
            RequestCode.LOCK_BATCH_MQ: self.handle_lock,
            RequestCode.UNLOCK_BATCH_MQ: self.handle_unlock,
            RequestCode.CHECK_CLIENT_CONFIG: self.handle_check,
        }

    def handle_heartbeat(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """HEART_BEAT (34): store the client, its groups and their subscriptions."""
        if len(request.body) > LARGE:
            return AsyncReply(lambda: self._handle_large_heartbeat(request, peer), needs_body=True)
        beat = read_heartbeat(request.body)
        for joining in beat.consumers:
            self._join(beat.client_id, joining, request, peer)
        for group in beat.producers:
            self._produce(beat.client_id, group, request, peer)
        return Reply(request.reply())

    async def _handle_large_heartbeat(self, request: RemotingCommand, peer: RequestPeer) -> RemotingCommand:
        """Take in many groups or topics: a thread reads the body, others have their turn after each group."""
        beat = await read_in_thread(read_heartbeat, request)
        for joining in beat.consumers:
            self._join(beat.client_id, joining, request, peer)
            await trio.lowlevel.checkpoint()
        for group in beat.producers:
            self._produce(beat.client_id, group, request, peer)
        return request.reply()

    def _join(self, client_id: str, joining: Joining, library: Library, peer: RequestPeer) -> None:
        self._prepare(joining, peer)
        member = Member(client_id, library.language, library.version, self._now_ms())
        self._tables.clients.consumer_joined(peer, member, joining)

    def _produce(self, client_id: str, group: str, library: Library, peer: RequestPeer) -> None:
        member = Member(client_id, library.language, library.version, self._now_ms())
        self._tables.clients.producer_joined(peer, group, member)

    def _prepare(self, joining: Joining, peer: RequestPeer) -> None:
        """Create the group and its retry topic at its first heartbeat, so that the first retry finds a route."""
        group = self._tables.groups.find(joining.group, peer.remote[0])
        if group is None and not is_group_name(joining.group):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"group {joining.group[:80]!a} is not a legal name of a group")
        if group is not None and group.retry_queues > 0:
            self._tables.topics.ensure(f"{RETRY_PREFIX}{group.name}", queues=group.retry_queues, unit=joining.unit)

    def handle_unregister(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """UNREGISTER_CLIENT (35): leave the groups named."""
        header = UnregisterClientHeader.from_ext(request.ext)
        self._tables.clients.left(peer, consumer_group=header.consumer_group, producer_group=header.producer_group)
        return Reply(request.reply())

    def handle_members(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_CONSUMER_LIST_BY_GROUP (38): client ids of a group, code 1 when nobody is there."""
        name = ConsumerGroupHeader.from_ext(request.ext).consumer_group
        group = self._tables.clients.consumers(name)
        if group is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return Reply(request.reply(body=fastjson.dumps({"consumerIdList": group.client_ids()})))

    def handle_lock(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """LOCK_BATCH_MQ (41): the queues granted."""
        return self._with_queues(request, lambda asked: self._lock(request, asked, peer))

    def _lock(self, request: RemotingCommand, asked: QueueLockRequest, peer: RequestPeer) -> RemotingCommand:
        address = counted_for(peer.remote[0])
        granted = self._tables.locks.lock(asked.group, _holder(asked, peer), asked.queues, address)
        return request.reply(body=lock_reply(granted, self._broker))

    def handle_unlock(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """UNLOCK_BATCH_MQ (42)."""
        return self._with_queues(request, lambda asked: self._unlock(request, asked, peer))

    def _unlock(self, request: RemotingCommand, asked: QueueLockRequest, peer: RequestPeer) -> RemotingCommand:
        self._tables.locks.unlock(asked.group, _holder(asked, peer), asked.queues)
        return request.reply()

    def _with_queues(self, request: RemotingCommand, run: Callable[[QueueLockRequest], RemotingCommand]) -> Answer:
        if len(request.body) <= LARGE:
            return Reply(run(read_lock(request.body)))

        async def later() -> RemotingCommand:
            return run(await read_in_thread(read_lock, request))

        return AsyncReply(later, needs_body=True)

    def handle_check(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """CHECK_CLIENT_CONFIG (46): refuse a filter expression before the consumer starts."""
        pace = self._tables.compile_pace
        try:
            _, subscription = read_check(request.body, lambda text, kind: pace.check(text, kind, peer.remote[0]))
        except SubscriptionError as exc:
            code = ResponseCode.SYSTEM_ERROR if exc.kind_unknown else ResponseCode.SUBSCRIPTION_PARSE_FAILED
            raise Refused(code, str(exc)) from exc
        if subscription is not None and not subscription.by_tags and not self._property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.kind}",
            )
        return Reply(request.reply())

    def _note_change(self, group: str) -> None:
        self._changed.add(group)
        self._work.set()

    async def run(self) -> None:
        """Tell members at once that their group changed, until cancelled."""
        while True:
            await self._work.wait()
            self._work, changed, self._changed = trio.Event(), self._changed, set()
            for name in changed:
                self._tell(name)
            await trio.sleep(CALM_S)

    def _tell(self, name: str) -> None:
        members, group = self._tables.clients.consumers(name), self._tables.groups.get(name)
        if members is None or not self._notify or (group is not None and not group.notify_members):
            return
        for peer in members.members:
            try:
                peer.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name})
            except Exception:  # of one member: the others are told
                log.exception("event=member_not_told group=%s peer=%s next_step=report_this", name, peer)

    async def run_expiry(self) -> None:
        """Every ten seconds disconnect silent clients and forget old locks, until cancelled."""
        while True:
            await trio.sleep(SCAN_S)
            for peer in self._tables.clients.expire():
                peer.close("silent")  # its client connects again and is heard of again
            self._tables.locks.drop_expired()


def _holder(asked: QueueLockRequest, peer: RequestPeer) -> str:
    """Return who holds a lock: a client id is a name inside its key."""
    return f"{owner_of(peer)}/{asked.client_id}"
