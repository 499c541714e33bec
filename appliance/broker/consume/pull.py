"""PULL_MESSAGE (11), LITE_PULL_MESSAGE (361): the stored bytes from an offset on, or wait for them.

What is in memory is answered at once in the loop; what is not, and what waits, gets a task. Checks are in Apache's
order. Source: RocketMQ 4.9.8 PullMessageProcessor, DefaultReading.getMessage.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from appliance.broker.consume.reading import MAX_BYTES, MAX_COUNT, FilteredReader
from appliance.broker.filter.kept_filters import KeptFilters, filtered
from appliance.broker.filter.subscriptions import (
    SQL92,
    AcceptsRecord,
    Subscription,
    SubscriptionError,
    parse_subscription,
    record_predicate,
    tags_predicate,
)
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.compile_pace import CompilePace
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.shares import counted_for
from appliance.broker.tables.topics import FAQ, Topic, TopicTable
from appliance.requests import Answer, AsyncReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import FIRST_5X_VERSION, RemotingCommand
from netstack.wire.message_headers import PullMessageHeader
from storage_driver.interfaces import Reading
from storage_driver.named_tuple import NamedTuple
from storage_driver.reading import FoundStatus, ReadRequest, ReadResult
from storage_driver.record import MessageQueue

SHORT_POLL_S: Final = 1.0
LONGEST_HOLD_S: Final = 300.0
_CODES: Final = {
    FoundStatus.FOUND: ResponseCode.SUCCESS,
    FoundStatus.NO_MATCHED: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FoundStatus.REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FoundStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    FoundStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    FoundStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    FoundStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


_BEHIND: Final = (
    FoundStatus.OFFSET_OVERFLOW_BADLY,
    FoundStatus.NO_MESSAGE_IN_QUEUE,
    FoundStatus.NO_MATCHED_LOGIC_QUEUE,
)


class GetStats(Protocol):
    """Counters of pulls."""

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int) -> None: ...
    def missed(self) -> None: ...


class PullRules(NamedTuple):
    """Configuration of pulls."""

    address: str
    readable: bool = True
    property_filter: bool = True
    long_poll: bool = True
    most: int = MAX_COUNT  # messages of one pull
    slave_reads: bool = False  # who is far behind is sent to a slave
    corrects: bool = True  # offsets beyond the end; a slave that is behind does not


class PullTables(NamedTuple):
    """What pulls look at; `moved` is told of an offset that had to be corrected."""

    topics: TopicTable
    groups: GroupTable
    clients: ClientTable
    offsets: OffsetTable
    arrivals: Arrivals
    stats: GetStats
    compile_pace: CompilePace
    moved: Callable[[str, MessageQueue, int, int], None] = lambda group, queue, asked, corrected: None


class Pull(NamedTuple):
    """One pull that passed the checks."""

    request: RemotingCommand
    header: PullMessageHeader
    wanted: ReadRequest


class Pulls:
    """Handles pulls; one object per broker."""

    def __init__(self, rules: PullRules, tables: PullTables, store: Reading) -> None:
        self._rules, self._tables, self._store = rules, tables, store
        self._reader, self._filters = FilteredReader(store, tables.arrivals), KeptFilters()

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        return dict.fromkeys((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), self.handle)

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Return available messages, or wait for them if the client allows. Raises Refused."""
        header = PullMessageHeader.from_ext(request.ext)
        request.body, request.remark = b"", None  # nobody reads them, and the pull may wait for long
        self._check(header, peer)
        subscription = self._subscription(header, peer)
        if header.sys_flag & PullMessageHeader.COMMIT_OFFSET:
            with suppress(Refused):  # a full table is no reason not to consume: the next commit is answered
                place = (header.consumer_group, header.topic, header.queue_id)
                self._tables.offsets.commit(*place, header.commit_offset, counted_for(peer.remote[0]))
        queue = MessageQueue(header.topic, header.queue_id)
        count = min(header.max_count, self._rules.most)
        tags, record = tags_predicate(subscription), _record_predicate(subscription)
        pull = Pull(request, header, ReadRequest(queue, header.queue_offset, count, _max_bytes(header), tags, record))
        if self._tables.offsets.resets and (moved := self._reset(pull)) is not None:
            return Reply(moved)
        if record is not None and header.queue_offset != self._store.max_offset(queue):
            return self._later(self._read_then_wait, pull, peer, subscription)
        found = self._store.read_hot(pull.wanted)
        if found is None:
            return self._later(self._read_then_wait, pull, peer, subscription)
        if _is_to_wait(header, self._as_asked(found, header)):
            return self._later(self._wait, pull, peer, subscription)
        return Reply(self._response(pull, found))

    def _later(
        self,
        run: Callable[[Pull, RequestPeer], Awaitable[RemotingCommand]],
        pull: Pull,
        peer: RequestPeer,
        subscription: Subscription,
    ) -> AsyncReply:
        """Return an answer that waits, and that keeps little of the request in memory. Raises Refused."""
        header, wanted, waits = pull.header, pull.wanted, run == self._wait
        inline = bool(header.sys_flag & PullMessageHeader.SUBSCRIPTION)
        kept = filtered(subscription, (wanted.accepts, wanted.accepts_record), inline=inline)
        self._filters.check(kept)
        if waits:
            self._park(peer)
        pull.request.ext = {}  # read, as the rest: as long as this waits they would stay
        header.subscription = header.expression_type = None
        if kept.is_small:
            return AsyncReply(lambda: run(pull, peer), pull=waits, reads=True)
        key, _, (tags, record), _ = self._filters.enter(kept)
        shared = pull._replace(wanted=wanted._replace(accepts=tags, accepts_record=record))
        return AsyncReply(lambda: self._filters.during(run(shared, peer), key), pull=waits, reads=True)

    def _check(self, header: PullMessageHeader, peer: RequestPeer) -> None:
        rules, tables, group_name = self._rules, self._tables, header.consumer_group
        if not rules.readable:
            raise _forbidden(f"the broker[{rules.address}] pulling message is forbidden")
        group = tables.groups.find(group_name, peer.remote[0])
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group_name}] does not exist, {FAQ}"
            )
        if not group.consume_enable:
            raise _forbidden(f"subscription group no permission, {group_name}")
        topic = tables.topics.get(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {FAQ}")
        if tables.groups.forbidden(group_name, topic.name):
            raise _forbidden(f"the consumer group[{group_name}] is forbidden for topic[{topic.name}]")
        if not topic.readable:
            raise _forbidden(f"the topic[{topic.name}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queues:
            raise _illegal_queue(header, topic, peer)
        if not header.sys_flag & PullMessageHeader.SUBSCRIPTION:
            self._check_registered(header, group)

    def _check_registered(self, header: PullMessageHeader, group: Group) -> None:
        """Check a pull that relies on its group's heartbeats. Raises Refused."""
        consumers = self._tables.clients.consumers(group.name)
        if consumers is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        if consumers.broadcasting and not group.consume_broadcast_enable:
            raise _forbidden(f"the consumer group[{group.name}] can not consume by broadcast way")
        subscription = consumers.subscriptions.get(header.topic)
        if subscription is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.version < header.sub_version:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")

    def _subscription(self, header: PullMessageHeader, peer: RequestPeer) -> Subscription:
        """Return the filter of this pull. Raises Refused."""
        if header.sys_flag & PullMessageHeader.CLASS_FILTER:
            return Subscription(header.topic)
        if header.sys_flag & PullMessageHeader.SUBSCRIPTION:
            self._tables.compile_pace.check(header.subscription or "", header.expression_type, peer.remote[0])
            subscription = self._inline(header)
        else:
            consumers = self._tables.clients.consumers(header.consumer_group)
            assert consumers is not None, "checked before"
            subscription = consumers.subscriptions[header.topic]
            self._tables.compile_pace.check(subscription.text, subscription.kind, peer.remote[0])
        if not subscription.by_tags and not self._rules.property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.kind}",
            )
        return subscription

    def _inline(self, header: PullMessageHeader) -> Subscription:
        if header.expression_type == SQL92 and not self._rules.property_filter:
            return Subscription(header.topic, "", SQL92)
        try:
            return parse_subscription(header.topic, header.subscription, header.expression_type, header.sub_version)
        except SubscriptionError as exc:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {exc}"
            ) from exc

    def _park(self, peer: RequestPeer) -> None:
        """Count a pull that waits. Raises Refused (SYSTEM_BUSY) at the limit: after 19 stock clients ask again at once.

        Java's push and lite pull consumers, Go and Node rest one to three seconds after any code that is no result.
        """
        arrivals = self._tables.arrivals
        if not arrivals.may_park(peer):
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{arrivals.parked} pulls wait for messages, limits.parked_pulls = {arrivals.most_parked}; "
                "too many long polls, retry in a few seconds, use fewer consumers or queues, or raise the limit",
            )
        arrivals.enter(peer)

    async def _read_then_wait(self, pull: Pull, peer: RequestPeer) -> RemotingCommand:
        header = pull.header
        found = await self._reader.read(pull.wanted, peer)
        if _is_to_wait(header, self._as_asked(found, header)):
            self._park(peer)
            return await self._wait(pull, peer)
        return self._response(pull, found)

    async def _wait(self, pull: Pull, peer: RequestPeer) -> RemotingCommand:
        """Wait for a match, then answer with whatever is there, also nothing."""
        header = pull.header
        timeout_s = header.suspend_ms / 1000 if self._rules.long_poll else SHORT_POLL_S
        timeout_s = min(max(timeout_s, 0.0), LONGEST_HOLD_S)
        try:
            _, found = await self._reader.wait((pull.wanted,), peer, group=header.consumer_group, timeout_s=timeout_s)
        finally:
            self._tables.arrivals.leave(peer)
        return self._response(pull, found)

    def _suggested(self, header: PullMessageHeader, found: ReadResult) -> int:
        """Return the broker id to read from next: a slave's for a group whose reads wait for the disk, far behind."""
        group = self._tables.groups.get(header.consumer_group) if self._rules.slave_reads else None
        if group is None:
            return 0
        return group.which_broker_when_slow if found.suggest_slow else group.broker_id

    def _as_asked(self, found: ReadResult, header: PullMessageHeader) -> ReadResult:
        """Return what was found; of an offset that a slave has not reached yet that there is nothing so far."""
        if self._rules.corrects or found.status not in _BEHIND:
            return found
        return found._replace(status=FoundStatus.OFFSET_OVERFLOW_ONE, next_offset=header.queue_offset)

    def _reset(self, pull: Pull) -> RemotingCommand | None:
        """Return the answer that sends a 5.x member where its group was put. Source: RocketMQ 5.3 OFFSET_RESET.

        An older one that begins a pull has been told by 220; then nobody else is waited for.
        """
        header, queue = pull.header, pull.wanted.queue
        target = self._tables.offsets.take_reset(header.consumer_group, queue.topic, queue.queue_id)
        if target is None or pull.request.version < FIRST_5X_VERSION:
            return None
        low, high = self._store.min_offset(queue), self._store.max_offset(queue)
        return pull.request.reply(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", _ext(target, low, high), b"")

    def _response(self, pull: Pull, found: ReadResult) -> RemotingCommand:
        new = pull.request.version >= FIRST_5X_VERSION
        if new and self._tables.offsets.resets and (moved := self._reset(pull)) is not None:
            return moved
        header, found = pull.header, self._as_asked(found, pull.header)
        code = _code_of(found, header.queue_offset)
        body = b""
        if code == ResponseCode.SUCCESS:
            body = found.chunks[0] if len(found.chunks) == 1 else b"".join(found.chunks)
            queue = pull.wanted.queue
            self._tables.stats.got(header.consumer_group, queue.topic, queue.queue_id, found.records, len(body))
        else:
            self._tables.stats.missed()
        self._tables.offsets.note_given(header.consumer_group, header.topic, header.queue_id, found.next_offset)
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._tables.moved(header.consumer_group, pull.wanted.queue, header.queue_offset, found.next_offset)
        ext = _ext(found.next_offset, found.min_offset, found.max_offset, self._suggested(header, found))
        return pull.request.reply(code, found.status.value, ext, body)


def _ext(next_offset: int, min_offset: int, max_offset: int, suggested_id: int = 0) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": str(suggested_id),
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
    }


def _is_to_wait(header: PullMessageHeader, found: ReadResult) -> bool:
    waits = header.sys_flag & PullMessageHeader.SUSPEND
    return bool(waits) and _code_of(found, header.queue_offset) == ResponseCode.PULL_NOT_FOUND


def _code_of(found: ReadResult, queue_offset: int) -> int:
    code = _CODES.get(found.status)
    if code is not None:
        return code
    return ResponseCode.PULL_NOT_FOUND if queue_offset == 0 else ResponseCode.PULL_OFFSET_MOVED


def _record_predicate(subscription: Subscription) -> AcceptsRecord | None:
    try:
        return record_predicate(subscription)
    except SubscriptionError as exc:
        raise Refused(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            f"The broker's consumer filter data is not exist!Your expression may be wrong! {exc}",
        ) from exc


def _max_bytes(header: PullMessageHeader) -> int:
    return MAX_BYTES if header.max_bytes is None or header.max_bytes <= 0 else min(header.max_bytes, MAX_BYTES)


def _forbidden(remark: str) -> Refused:
    return Refused(ResponseCode.NO_PERMISSION, remark)


def _illegal_queue(header: PullMessageHeader, topic: Topic, peer: RequestPeer) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_ERROR,
        f"queueId[{header.queue_id}] is illegal, topic:[{topic.name}] topicConfig.readQueueNums:[{topic.read_queues}] "
        f"consumer:[{peer.remote[0]}:{peer.remote[1]}]",
    )
