"""Clients that ask any box of a group, one request after the other, and write down what they were told.

Each request is one try: what is not answered with success is not known to have happened.
"""

import itertools
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import trio

from netstack.serving.channel import Channel, open_channel
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand, request
from tests.appliance.box import ask, messages_of, pull, send
from tests.appliance.group.real_group import RealMember
from tests.appliance.group.test_real_pair import LOST
from tests.histories.history import LOCK, QUEUE, REGISTER, History, Operation

TOPIC, GROUP = "T", "CG"
QUEUES, REGISTERS = 2, 2
ANSWER_S, REST_S = 3.5, 0.01
CONNECT_S = 1.0


class Recorder:
    """The histories of all objects, and numbers for values that nobody else uses."""

    def __init__(self, hosts: Callable[[], list[tuple[str, int]]], dice: random.Random) -> None:
        self.histories: dict[str, History] = {}
        self.phase = 0  # a lock whose client was told nothing may be held for a minute: each phase has one of its own
        self.answered = 0
        self._hosts, self._dice = hosts, dice
        self._values, self._clients = itertools.count(1), itertools.count(1)

    def add(self, model: str, key: str, operation: Operation) -> None:
        self.histories.setdefault(key, History(model, key)).operations.append(operation)
        self.answered += operation.known

    async def run(self, work: "Callable[[Client], Work]") -> None:
        """Ask until cancelled; a client that was told nothing is followed by another."""
        while True:
            host, port = self._dice.choice(self._hosts())
            try:
                async with open_channel(host, port, connect_timeout_s=CONNECT_S) as channel:
                    client = Client(self, channel, next(self._clients))
                    one = work(client)
                    while await one():  # noqa: ASYNC110 a rest between two requests
                        await trio.sleep(self._dice.uniform(0, 2 * REST_S))
            except* LOST:
                pass
            await trio.sleep(REST_S)

    def value(self) -> int:
        return next(self._values)

    def choose(self, most: int) -> int:
        return self._dice.randrange(most)


Work = Callable[[], Awaitable[bool]]


class Client:
    """One connection of one client; it ends with the first request that is not answered with success."""

    def __init__(self, recorder: Recorder, channel: Channel, number: int) -> None:
        self._recorder, self._channel, self._number = recorder, channel, number

    async def _asked(
        self,
        model: str,
        key: str,
        operation: Operation,
        command: RemotingCommand,
        result: Callable[[RemotingCommand], int],
    ) -> bool:
        """Ask and write down; return whether this client may go on."""
        asked = replace(operation, client=self._number, call=time.monotonic_ns())
        told: Operation | None = None
        try:
            answer = await self._channel.ask(command, ANSWER_S)
            if answer.code == 0:
                told = asked.told(result(answer), time.monotonic_ns())
        finally:
            if told is not None or asked.op not in ("end", "get"):
                self._recorder.add(model, key, told or asked)
        return told is not None

    async def put_or_look(self) -> bool:
        """Send a message, or ask for the end of a queue."""
        queue = self._recorder.choose(QUEUES)
        key = f"{TOPIC}/{queue}"
        if self._recorder.choose(2):
            command = ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=queue)
            return await self._asked(QUEUE, key, Operation("end"), command, lambda told: int(told.ext["offset"]))
        value = self._recorder.value()
        command = send(TOPIC, b"%d" % value, queue_id=queue)
        return await self._asked(
            QUEUE, key, Operation("put", value), command, lambda told: int(told.ext["queueOffset"])
        )

    async def commit_or_query(self) -> bool:
        """Commit an offset of a group, or ask for it."""
        queue = self._recorder.choose(REGISTERS)
        key, where = f"{GROUP}/{queue}", {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue}
        if self._recorder.choose(2):
            command = ask(RequestCode.QUERY_CONSUMER_OFFSET, **where)
            return await self._asked(REGISTER, key, Operation("get"), command, lambda told: int(told.ext["offset"]))
        value = self._recorder.value()
        command = ask(RequestCode.UPDATE_CONSUMER_OFFSET, **where, commitOffset=value)
        return await self._asked(REGISTER, key, Operation("set", value), command, lambda told: 0)

    async def lock_or_unlock(self) -> bool:
        """Ask for the lock of a queue, or give it back."""
        group = f"{GROUP}{self._recorder.phase}"
        op = "unlock" if self._recorder.choose(3) == 0 else "lock"
        code = RequestCode.LOCK_BATCH_MQ if op == "lock" else RequestCode.UNLOCK_BATCH_MQ
        queue = {"brokerName": "press", "queueId": 0, "topic": TOPIC}
        body = {"clientId": f"client-{self._number}", "consumerGroup": group, "mqSet": [queue]}
        operation = Operation(op, self._number)
        return await self._asked(LOCK, group, operation, request(code, {}, fastjson.dumps(body)), _granted)


def _granted(answer: RemotingCommand) -> int:
    return int(bool(answer.body) and bool(fastjson.loads(answer.body).get("lockOKMQSet")))


KINDS: tuple[Callable[[Client], Work], ...] = (
    *[lambda client: client.put_or_look] * 3,
    *[lambda client: client.commit_or_query] * 2,
    *[lambda client: client.lock_or_unlock] * 2,
)


async def note_content(recorder: Recorder, member: RealMember, host: str) -> None:
    """Write down what the queues hold at the end, as the leader tells it."""
    async with open_channel(host, member.broker_port) as channel:
        for queue in range(QUEUES):
            found, at, call = list[int](), 0, time.monotonic_ns()
            while (answer := await channel.ask(pull(TOPIC, at, queue), 10)).code == 0:
                found += [int(message.body) for message in messages_of(answer)]
                at = int(answer.ext["nextBeginOffset"])
            operation = Operation("all", call=call, all=tuple(found)).told(0, time.monotonic_ns())
            recorder.add(QUEUE, f"{TOPIC}/{queue}", operation)
