"""A NameServer and a broker of one topic over real sockets, whose answers a test decides and whose requests it sees."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from netstack.client.instance import Instance
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.bodies import ConsumerIdList, LockReply, LockRequest
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply
from netstack.wire.json_body import MessageQueue

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"b","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":%d,"topicSysFlag":0,"writeQueueNums":%d}]}'
)


class SmallCluster:
    """What one broker knows; `failing` codes are refused with 1."""

    def __init__(self, queues: int = 4) -> None:
        self.queues = queues
        self.members: list[str] = []
        self.offsets: dict[int, int] = {}  # queue id -> committed
        self.ends: dict[int, int] = {}
        self.lockable: set[int] = set(range(queues))
        self.failing: set[int] = set()
        self.seen: list[tuple[int, dict[str, str]]] = []
        self.unlocked: list[int] = []

    def codes(self) -> list[int]:
        return [code for code, _ in self.seen]

    def answer(self, request: RemotingCommand, peer: Peer) -> Answer:
        code, ext = request.code, request.ext
        self.seen.append((code, dict(ext)))
        queue_id = int(ext.get("queueId", 0))
        if code in self.failing:
            return Reply(request.reply(1, "on purpose"))
        if code == Code.GET_CONSUMER_LIST_BY_GROUP:
            return Reply(request.reply(body=ConsumerIdList(tuple(self.members)).to_bytes()))
        if code == Code.QUERY_CONSUMER_OFFSET:
            known = self.offsets.get(queue_id)
            return Reply(request.reply(22, "none") if known is None else request.reply(0, None, {"offset": str(known)}))
        if code == Code.UPDATE_CONSUMER_OFFSET:
            self.offsets[queue_id] = int(ext["commitOffset"])
        if code in (Code.GET_MAX_OFFSET, Code.SEARCH_OFFSET_BY_TIMESTAMP):
            return Reply(request.reply(0, None, {"offset": str(self.ends.get(queue_id, 0))}))
        if code in (Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
            asked = LockRequest.from_bytes(request.body).mq_set
            if code == Code.UNLOCK_BATCH_MQ:
                self.unlocked += [queue.queue_id for queue in asked]
            granted = tuple(queue for queue in asked if queue.queue_id in self.lockable)
            return Reply(request.reply(body=LockReply(granted).to_bytes()))
        return Reply(request.reply())

    @asynccontextmanager
    async def instance(self) -> AsyncIterator[Instance]:
        """A client of this cluster that is the group's only member so far."""
        async with serving(self.answer) as port:
            route = ROUTE % (port, self.queues, self.queues)
            async with (
                serving(lambda request, peer: Reply(request.reply(body=route))) as names,
                Instance(f"127.0.0.1:{names}") as instance,
            ):
                self.members.append(instance.client_id)
                yield instance

    def queue(self, queue_id: int) -> MessageQueue:
        return MessageQueue("T", "b", queue_id)
