"""Progress of groups, and resets (43, 45, 208, 222, 308, 314, 317).

Resetting is done by the consumers themselves: the broker works out the offsets and tells each member.
Source: RocketMQ 4.9.8 AdminBrokerProcessor, Broker2Client.resetOffset.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import trio

from appliance.broker.admin.stats import BrokerCounters
from appliance.broker.consume.lookups import bound_for
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.clients import GRPC, ClientTable
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import NOT_STORED, OffsetTable
from appliance.broker.tables.topics import Topic, TopicTable
from appliance.requests import Answer, AsyncReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire.bodies import ResetOffset
from netstack.wire.bodies_admin import (
    AllConsumeStats,
    ConsumeStats,
    CorrectionOffsets,
    DelayOffsets,
    OffsetWrapper,
)
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import FIRST_5X_VERSION, RemotingCommand
from netstack.wire.headers import ResetOffsetHeader
from netstack.wire.headers_admin import (
    AllConsumeStatsHeader,
    CloneOffsetHeader,
    ConsumeStatsHeader,
    CorrectionOffsetHeader,
)
from netstack.wire.json_body import MessageQueue as NamedQueue
from storage_driver.interfaces import Reading
from storage_driver.record import MessageQueue

LONG_MAX = (1 << 63) - 1
END_OF_QUEUE = -1  # as a time
CPP, JAVA = "CPP", "JAVA"
MOST_ROWS = 50_000  # queues in one answer, 600 bytes each: more do not fit into a frame of Java's
FEW_ROWS = 2_000  # those of larger answers are made one answer at a time, and written in a thread
ROWS_PER_TURN = 500  # of one topic; then others have their turn


@dataclass(frozen=True, slots=True)
class ProgressTables:
    """State that progress is computed from."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    stats: BrokerCounters
    arrivals: Arrivals


class OffsetCommands:
    """Handles queries and commands about consumer offsets."""

    def __init__(
        self,
        tables: ProgressTables,
        store: Reading,
        *,
        broker: str,
        address: str,
        delay_offsets: Callable[[], dict[int, int]],
    ) -> None:
        self._topics, self._offsets, self._clients = tables.topics, tables.offsets, tables.clients
        self._stats, self._arrivals, self._groups = tables.stats, tables.arrivals, tables.groups
        self._store, self._broker, self._address, self._delay_offsets = store, broker, address, delay_offsets
        self._large, self._copied = trio.Lock(), trio.Lock()

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        c = RequestCode
        return {
            c.GET_ALL_CONSUMER_OFFSET: self.handle_all_offsets,
            c.GET_ALL_DELAY_OFFSET: self.handle_delay_offsets,
            c.GET_CONSUME_STATS: self.handle_stats,
            c.GET_BROKER_CONSUME_STATS: self.handle_all_stats,
            c.INVOKE_BROKER_TO_RESET_OFFSET: self.handle_reset,
            c.QUERY_CORRECTION_OFFSET: self.handle_correction,
            c.CLONE_GROUP_OFFSET: self.handle_clone,
        }

    def handle_all_offsets(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_ALL_CONSUMER_OFFSET (43)."""
        if not self._offsets.table():
            raise Refused(ResponseCode.SYSTEM_ERROR, "No consumer offset in this broker")

        async def answer() -> RemotingCommand:
            async with self._copied:  # a slave waits for three seconds, not for the progress in 50,000 queues
                return request.reply(body=await self._offsets.encoded())

        return AsyncReply(answer)

    def handle_delay_offsets(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_ALL_DELAY_OFFSET (45)."""
        table = self._delay_offsets()
        if not table:
            raise Refused(ResponseCode.SYSTEM_ERROR, "No delay offset in this broker")
        return Reply(request.reply(body=DelayOffsets(table).to_bytes()))

    # progress

    def handle_stats(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_CONSUME_STATS (208): offsets of broker and group in each queue; an empty table for an unknown group."""
        return AsyncReply(partial(self._group_stats, request, ConsumeStatsHeader.from_ext(request.ext)))

    async def _group_stats(self, request: RemotingCommand, asked: ConsumeStatsHeader) -> RemotingCommand:
        """Raises Refused for too many queues."""
        group = asked.consumer_group
        named = [asked.topic] if asked.topic else [name for name in (asked.topic_list or "").split(";") if name]
        topics = list(self._consumed(group, dict.fromkeys(named or self._offsets.topics_of(group))))
        if _rows_of(topics) <= FEW_ROWS:
            return await self._answer_stats(request, group, topics)
        async with self._large:
            return await self._answer_stats(request, group, topics)

    async def _answer_stats(self, request: RemotingCommand, group: str, topics: Iterable[Topic]) -> RemotingCommand:
        table: dict[NamedQueue, OffsetWrapper] = {}
        tps = 0.0
        for topic in topics:
            table |= await self._queues_of(group, topic)
            tps += self._stats.consume_tps(group, topic.name)
        return request.reply(body=await _written(ConsumeStats(table, tps), len(table)))

    def _consumed(self, group: str, names: Iterable[str]) -> Iterator[Topic]:
        """Yield the topics that exist and that a group, while it is connected, subscribes to."""
        online = self._clients.consumers(group)
        subscribed = online.subscriptions.keys() if online else ()
        for name in names:
            topic = self._topics.get(name)
            if topic is not None and (not subscribed or name in subscribed):
                yield topic

    async def _queues_of(self, group: str, topic: Topic) -> dict[NamedQueue, OffsetWrapper]:
        table = {}
        for queue_id in range(topic.read_queues):
            if queue_id % ROWS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            queue = MessageQueue(topic.name, queue_id)
            offset = max(self._offsets.get(group, topic.name, queue_id), 0)
            last_ms = await self._store.stored_ms_at(queue, offset - 1) if offset > 0 else None
            end = self._store.max_offset(queue)
            given = max(self._offsets.given(group, topic.name, queue_id), 0)
            table[NamedQueue(topic.name, self._broker, queue_id)] = OffsetWrapper(end, offset, last_ms or 0, given)
        return table

    def handle_all_stats(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_BROKER_CONSUME_STATS (317): the same for every group and topic with offsets."""
        return AsyncReply(partial(self._all_stats, request, AllConsumeStatsHeader.from_ext(request.ext).is_order))

    async def _all_stats(self, request: RemotingCommand, ordered_only: bool) -> RemotingCommand:
        """One at a time. Raises Refused for too many queues."""
        async with self._large:
            pairs = [
                (group, topic)
                for topic_name, _, group in (name.partition("@") for name in self._offsets.table())
                if (topic := self._topics.get(topic_name)) is not None and (topic.order or not ordered_only)
            ]
            _rows_of(topic for _, topic in pairs)
            return await self._answer_all_stats(request, pairs)

    async def _answer_all_stats(self, request: RemotingCommand, pairs: Iterable[tuple[str, Topic]]) -> RemotingCommand:
        groups: dict[str, list[ConsumeStats]] = {}
        behind = rows = 0
        for group, topic in pairs:
            table = await self._queues_of(group, topic)
            behind += sum(item.broker_offset - item.consumer_offset for item in table.values())
            rows += len(table)
            stats = ConsumeStats(table, self._stats.consume_tps(group, topic.name))
            groups.setdefault(group, []).append(stats)
        listed = tuple({group: tuple(items)} for group, items in groups.items())
        return request.reply(body=await _written(AllConsumeStats(listed, self._address, behind), rows))

    # changes

    def handle_reset(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """INVOKE_BROKER_TO_RESET_OFFSET (222): resets the members of a group to a time, read as a search (29) reads it.

        206 when nobody is connected: the tools then store offsets one by one. A group that has no offsets yet, such as
        one of broadcast consumers, gets them as from 5.x; 4.9 calls it one that does not exist. A 5.x tool may name one
        queue, and an offset; that is stored, too, so that it holds for who connects later.
        """
        header = ResetOffsetHeader.from_ext(request.ext)
        topic = self._topics.get(header.topic)
        if topic is None:
            text = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        if header.queue_id is not None and header.queue_id >= 0:
            return AsyncReply(partial(self._reset_queue, request, header, MessageQueue(topic.name, header.queue_id)))
        return AsyncReply(partial(self._reset, request, header, topic))

    async def _reset_queue(
        self, request: RemotingCommand, asked: ResetOffsetHeader, queue: MessageQueue
    ) -> RemotingCommand:
        low, high = self._store.min_offset(queue), self._store.max_offset(queue)
        target = asked.offset
        if target is None or target == NOT_STORED:
            target = await self._target(queue, asked.time_ms, bound_for(request))
        elif not low <= target <= high:
            remark = f"Target offset {target} not in consume queue range [{low}-{high}]"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        self._offsets.move(asked.group, queue.topic, queue.queue_id, target)
        return self._tell(request, asked, {NamedQueue(queue.topic, self._broker, queue.queue_id): target})

    async def _reset(self, request: RemotingCommand, asked: ResetOffsetHeader, topic: Topic) -> RemotingCommand:
        table: dict[NamedQueue, int] = {}
        exists = self._groups.get(asked.group) is not None
        for queue_id in range(topic.write_queues):
            current = self._offsets.get(asked.group, topic.name, queue_id)
            if current == NOT_STORED and not exists:
                return request.reply(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{asked.group}> not exist")
            target = await self._target(MessageQueue(topic.name, queue_id), asked.time_ms, bound_for(request))
            moves = asked.is_force or target < current or current == NOT_STORED
            table[NamedQueue(topic.name, self._broker, queue_id)] = target if moves else current
        if self._clients.consumers(asked.group) is None:
            asker = f"Group: {asked.group} Topic: {topic.name} Timestamp: {asked.time_ms}"
            remark = f"Consumer not online, so can not reset offset, {asker}"
            return request.reply(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        return self._tell(request, asked, table)

    def _tell(
        self, request: RemotingCommand, asked: ResetOffsetHeader, table: dict[NamedQueue, int]
    ) -> RemotingCommand:
        """Send the members their offsets; with their next pulls those of 5.x, which 220 stops for 10 s and more, and
        those of gRPC, which take no such request.
        """
        group, told, by_pull = self._clients.consumers(asked.group), ResetOffset(table), False
        ext = {"topic": asked.topic, "group": asked.group, "timestamp": str(asked.time_ms), "isForce": "true"}
        for peer, member in group.members.items() if group else ():
            java_5x = member.language == JAVA and member.version >= FIRST_5X_VERSION
            if member.protocol == GRPC or (java_5x and group and not group.broadcasting):
                by_pull = True
                continue
            body = told.to_bytes_for_cpp() if member.language == CPP else told.to_bytes()
            peer.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, body)
        for queue, queue_offset in table.items():
            if by_pull:
                self._offsets.reset(asked.group, queue.topic, queue.queue_id, queue_offset)
            else:
                self._offsets.take_reset(asked.group, queue.topic, queue.queue_id)  # of members that have left
        if by_pull:
            self._arrivals.release(asked.group)
        return request.reply(body=told.to_bytes())

    async def _target(self, queue: MessageQueue, time_ms: int, boundary: str) -> int:
        if time_ms == END_OF_QUEUE:
            return self._store.max_offset(queue)
        return max(await self._store.offset_by_time(queue, time_ms, boundary=boundary), 0)

    def handle_correction(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_CORRECTION_OFFSET (308): the least offset of all groups on a topic, beside one group's own."""
        header = CorrectionOffsetHeader.from_ext(request.ext)
        left_out = set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            if group not in left_out:
                for queue_id, offset in self._offsets.of(header.topic, group).items():
                    least[queue_id] = min(offset, least.get(queue_id, LONG_MAX))
        own = self._offsets.of(header.topic, header.compare_group)
        table = {q: offset if own.get(q, LONG_MAX) > offset else LONG_MAX for q, offset in least.items()}
        return Reply(request.reply(body=CorrectionOffsets(table).to_bytes()))

    def handle_clone(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """CLONE_GROUP_OFFSET (314): give a group the offsets of another, on one topic or on all."""
        header = CloneOffsetHeader.from_ext(request.ext)
        names = [header.topic] if header.topic else self._offsets.topics_of(header.src_group)
        online = self._clients.consumers(header.src_group)
        for name in names:
            skipped = not header.offline and online is not None and name not in online.subscriptions
            if self._topics.get(name) is not None and not skipped:
                self._offsets.copy(header.src_group, header.dest_group, name)
        return Reply(request.reply())


def _rows_of(topics: Iterable[Topic]) -> int:
    """Return how many queues an answer about topics has. Raises Refused for more than MOST_ROWS."""
    rows = sum(max(1, topic.read_queues) for topic in topics)
    if rows > MOST_ROWS:
        text = f"the progress in {rows} queues does not fit into one answer, at most {MOST_ROWS} do"
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{text}: ask for one group and topic at a time")
    return rows


async def _written(body: ConsumeStats | AllConsumeStats, rows: int) -> bytes:
    """Return the JSON of an answer; of many rows it takes so long that others continue meanwhile."""
    return body.to_bytes() if rows <= FEW_ROWS else await trio.to_thread.run_sync(body.to_bytes)
