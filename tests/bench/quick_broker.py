"""A NameServer and broker that answer everything at once and store nothing, for benches of clients.

`python tests/bench/quick_broker.py PORT` prints `ready`. Every topic has four queues without end: a pull gets as many
messages of 1 KiB as it asks for.
"""

import struct
import sys
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from netstack.serving.peer import Peer
from netstack.serving.server import open_listeners, serve_remoting
from netstack.wire.bodies import ConsumerIdList, HeartbeatData
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply
from storage_driver.record import Message, encode_record, encode_topic

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"quick","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"quick","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
STORED = {"msgId": "7F00000100002A9F00000000000003E8", "queueOffset": "5"}
OFFSET_AT = 20
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


class QuickBroker:
    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: list[str] = []
        self._records: dict[tuple[str, int], tuple[bytes, bytes]] = {}
        self._handlers = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda request: request.reply(body=ROUTE % self._port),
            RequestCode.SEND_MESSAGE_V2: _stored,
            RequestCode.SEND_BATCH_MESSAGE: _stored,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: lambda request: request.reply(0, None, {"offset": "0"}),
            RequestCode.PULL_MESSAGE: self._pull,
        }

    def handle(self, request: RemotingCommand, peer: Peer) -> Answer:
        handler = self._handlers.get(request.code)
        if handler is None or (request.code == RequestCode.PULL_MESSAGE and request.ext["topic"].startswith("%")):
            return Reply(request.reply()) if handler is None else None
        return Reply(handler(request))

    def _heartbeat(self, request: RemotingCommand) -> RemotingCommand:
        self._clients = [HeartbeatData.from_bytes(request.body).client_id]
        return request.reply()

    def _members(self, request: RemotingCommand) -> RemotingCommand:
        return request.reply(body=ConsumerIdList(tuple(self._clients)).to_bytes())

    def _pull(self, request: RemotingCommand) -> RemotingCommand:
        topic, queue_id = request.ext["topic"], int(request.ext["queueId"])
        at, number = int(request.ext["queueOffset"]), int(request.ext["maxMsgNums"])
        before, behind = self._record(topic, queue_id)
        body = b"".join([before + struct.pack(">q", at + step) + behind for step in range(number)])
        offsets = {"nextBeginOffset": str(at + number), "minOffset": "0", "maxOffset": str(at + 10 * number)}
        return request.reply(0, "FOUND", {"suggestWhichBrokerId": "0", **offsets}, body)

    def _record(self, topic: str, queue_id: int) -> tuple[bytes, bytes]:
        """Return a record's bytes before and behind its queue offset."""
        if (topic, queue_id) not in self._records:
            properties = b"UNIQ_KEY\x017F00000100002A9F0000000000000000\x02WAIT\x01true\x02"
            message = Message(topic, queue_id, bytes(1024), properties, 0, 0, 1_700_000_000_000, HOST)
            made = encode_record(message, encode_topic(topic), 0, 0, stored_ms=1_700_000_000_000, store_host=HOST)
            self._records[topic, queue_id] = made[:OFFSET_AT], made[OFFSET_AT + 8 :]
        return self._records[topic, queue_id]


def _stored(request: RemotingCommand) -> RemotingCommand:
    queue_id = request.send.queue_id if request.send else request.ext["e"]
    return request.reply(0, None, {**STORED, "queueId": str(queue_id)})


async def main(port: int) -> None:
    listeners = await open_listeners("127.0.0.1", port)
    print("ready", flush=True)
    await serve_remoting(listeners, QuickBroker(port).handle)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
