"""Requests of POP as a 5.5.0 client makes them, for tests over a socket."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from netstack.serving.channel import Channel
from netstack.wire.command import RemotingCommand, request
from storage_driver.record import StoredMessage
from tests.appliance.box import ask, messages_of
from tests.waiting import until_it

BORN_MS = 1_700_000_000_000


def pop(topic: str = "T", *, poll_ms: int = 0, most: int = 32, **more: object) -> RemotingCommand:
    """Return a 200050; `more` are ext fields."""
    fields: dict[str, object] = {"queueId": -1, "invisibleTime": 60_000, "bornTime": BORN_MS, "initMode": 0, **more}
    return ask(200050, consumerGroup="CG", topic=topic, maxMsgNums=most, pollTime=poll_ms, **fields)


@dataclass(frozen=True, slots=True)
class Popped:
    """One message of an answer and its handle, made as MQClientAPIImpl makes it."""

    message: StoredMessage
    handle: str

    @property
    def real_topic(self) -> str:
        kind = self.handle.split()[4]
        return {"0": "T", "1": "%RETRY%CG_T", "2": "%RETRY%CG+T"}[kind]

    def ack(self, code: int = 200051, **more: object) -> RemotingCommand:
        """Return the acknowledgement of this message, or another request that names it."""
        queue_id, offset = self.handle.split()[6:8]
        fields = {"consumerGroup": "CG", "topic": self.real_topic, "queueId": queue_id, "offset": offset}
        return ask(code, **{**fields, "extraInfo": self.handle, **more})


def popped(answer: RemotingCommand, broker: str = "box") -> list[Popped]:
    """Return the messages of an answer with their handles."""
    if answer.code != 0:
        assert answer.code == 210, answer.remark
        return []
    ext, found = answer.ext, []
    starts = {tuple(part.split()[:2]): part.split()[2] for part in ext["startOffsetInfo"].split(";")}
    offsets = {tuple(part.split()[:2]): part.split()[2].split(",") for part in ext["msgOffsetInfo"].split(";")}
    head = f"{ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']}"
    for message in messages_of(answer):
        handle = message.property_map.get("POP_CK")
        if handle is None:
            key = ("0", str(message.queue_id))
            offset = offsets[key].pop(0)
            assert int(offset) == message.queue_offset
            handle = f"{starts[key]} {head} 0 {broker} {message.queue_id} {offset}"
        found.append(Popped(message, handle))
    return found


async def waiting(channel: Channel) -> int:
    """Return how many receivers wait."""
    answer = await channel.ask(ask(200055, consumerGroup="CG", topic="T", queueId=-1))
    return int(answer.ext["pollingNum"])


async def until_waiting(channel: Channel, count: int) -> None:
    """Return once so many receivers wait."""

    async def so_many() -> bool:
        return await waiting(channel) == count

    await until_it(so_many)


async def bodies(channel: Channel, command: RemotingCommand) -> list[bytes]:
    """Return the bodies that a pop gets."""
    return [each.message.body for each in popped(await channel.ask(command))]


def batch(*acks: Mapping[str, object]) -> RemotingCommand:
    """Return a 200151."""
    return request(200151, {}, json.dumps({"brokerName": "box", "acks": acks}).encode())


def mode(topic: str, group: str, name: str, share: int = 0) -> RemotingCommand:
    """Return a 401."""
    body = {"topic": topic, "consumerGroup": group, "mode": name, "popShareQueueNum": share}
    return request(401, {}, json.dumps(body).encode())
