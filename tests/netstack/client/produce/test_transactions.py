"""What becomes of a half message's verdict when the broker is known only from the route of the template topic."""

from dataclasses import dataclass, field

import trio

from netstack.client import Message, Producer, Verdict
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply

STORED = {"msgId": "7F00000100002A9F00000000000003E8", "queueId": "0", "queueOffset": "5"}
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"a","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":7,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}'
)


@dataclass
class NewTopics:
    """A NameServer and broker whose topics are not in any route yet, as those of Apache's in their first seconds."""

    port: int = 0
    verdicts: list[dict[str, str]] = field(default_factory=list)
    told: trio.Event = field(default_factory=trio.Event)

    def handle(self, request: RemotingCommand, peer: Peer) -> Answer:
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            if request.ext["topic"] != "TBW102":
                return Reply(request.reply(ResponseCode.TOPIC_NOT_EXIST))
            return Reply(request.reply(body=ROUTE % self.port))
        if request.code == RequestCode.END_TRANSACTION:
            self.verdicts.append(request.ext)
            self.told.set()
            return None
        return Reply(request.reply(0, None, STORED if request.code == RequestCode.SEND_MESSAGE_V2 else None))


async def test_the_verdict_on_a_message_to_a_new_topic_goes_where_the_message_went() -> None:
    cluster = NewTopics()

    async def commit(message: Message, message_id: str) -> Verdict:
        return Verdict.COMMIT

    async with serving(cluster.handle) as cluster.port, Producer("g", f"127.0.0.1:{cluster.port}") as producer:
        await producer.send_in_transaction(Message("new", b"half"), commit)
        with trio.fail_after(60):
            await cluster.told.wait()
    (told,) = cluster.verdicts
    assert (told["commitOrRollback"], told["commitLogOffset"]) == (str(int(Verdict.COMMIT)), "1000")
