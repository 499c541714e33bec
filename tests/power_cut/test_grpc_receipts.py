"""Receipts of gRPC over power cuts: an acknowledgement that was answered counts for good, the rest comes again."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio

from appliance.broker.filter.kept_filters import KeptFilters
from appliance.broker.pop.engine import PopEngine
from appliance.broker.rights import Signer
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.compile_pace import CompilePace
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.grpc.acks import Acks
from appliance.grpc.clients import ClientSessions
from appliance.grpc.consumers import ConsumerRules, Consumers
from appliance.grpc.kept_settings import KeptSettings
from appliance.grpc.receives import ReceiveRules, Receives
from appliance.grpc.refusals import Refusals
from appliance.testing import MemoryStateFile
from netstack.grpc.calls import Call, Deferred
from netstack.grpc.v2.definition_pb2 import Code, Message
from netstack.grpc.v2.service_pb2 import (
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ReceiveMessageResponse,
)
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from storage_driver.log.marks import reached
from storage_driver.testing import MemoryDisk
from tests.appliance.grpc.asking import acking, consumer_settings, receiving
from tests.power_cut.test_pop import BASE_MS, GROUP, TOPIC, PopWork, cut_everywhere

OK = int(Code.OK)
LEAST_S = 10  # the shortest invisible time of gRPC


class OpenGate:
    """Everybody may do all."""

    def opens_data(self, address: str, /) -> bool:
        return True

    def takes_copies(self, peer: Peer, /) -> bool:
        return True


class GrpcDoor:
    """What answers gRPC consumers, over one engine, and one client of it."""

    def __init__(self, engine: PopEngine) -> None:
        topics = TopicTable(MemoryStateFile(), TopicRules("cluster", "broker"), now_ms=now_ms)
        topics.ensure(TOPIC, queues=1)
        groups = GroupTable(MemoryStateFile(), now_ms=now_ms)
        groups.put(Group(GROUP, retry_max_times=100))
        sessions = ClientSessions(OpenGate(), _NoKeys(), engine.renew)
        consumers = Consumers(
            ConsumerRules("1s 5s"),
            topics,
            groups,
            ClientTable(now_ms=now_ms, uptime_ms=now_ms),
            CompilePace(lambda: 0.0),
            now_ms=now_ms,
        )
        self._receives = Receives(
            ReceiveRules("box"), lambda: engine, sessions, consumers, KeptFilters(), refusals=Refusals(Counter())
        )
        self._acks = Acks("box", lambda: engine, now_ms)
        self._peer = Peer(1, ("10.0.0.1", 5), ("10.0.0.2", 8081), Outbox())
        self._session = sessions.of(self._call([]))
        sessions.settle(self._session, KeptSettings(consumer_settings(GROUP, TOPIC)))

    def _call(self, answers: list[bytes]) -> Call:
        def send(messages: Sequence[bytes], _now: bool) -> bool:
            answers.extend(messages)
            return True

        return Call(self._peer, {b"x-mq-client-id": b"client@1"}, send, trio.current_time())

    async def receive(self, invisible_s: int) -> list[Message]:
        answers: list[bytes] = []
        call = self._call(answers)
        request = receiving(GROUP, TOPIC, batch=4, invisible_s=invisible_s, poll_s=5)
        call.arrived(request.SerializeToString())
        call.half_closed()
        await self._receives.handle(call)
        parts = [ReceiveMessageResponse.FromString(raw) for raw in answers]
        return [part.message for part in parts if part.HasField("message")]

    async def acknowledge(self, message: Message) -> bool:
        """Return whether the answer says that it counts."""
        call = self._call([])
        answer = self._acks.acknowledge(self._session, call, acking(GROUP, TOPIC, message))
        return await self._code_of(AckMessageResponse, answer) == OK

    async def renew(self, message: Message, invisible_s: int) -> bool:
        request = ChangeInvisibleDurationRequest(receipt_handle=message.system_properties.receipt_handle)
        request.group.name, request.topic.name = GROUP, TOPIC
        request.invisible_duration.seconds = invisible_s
        answer = self._acks.change(self._session, self._call([]), request)
        return await self._code_of(ChangeInvisibleDurationResponse, answer) == OK

    @staticmethod
    async def _code_of(kind: Any, answer: Any) -> int:
        if isinstance(answer, Deferred):
            assert await reached(answer.when, answer.mark) is None
            answer = answer.message
        response = kind.FromString(answer) if isinstance(answer, bytes) else answer
        return int(response.status.code)


class _NoKeys:
    """Nobody signs here."""

    def proven(self, name: str, peer: Peer, proves: Callable[[str], bool], /) -> Signer:
        raise AssertionError(name)

    def white_listed(self, address: str, /) -> None:
        return None


def now_ms() -> int:
    return int(BASE_MS + trio.current_time() * 1000)


class GrpcWork(PopWork):
    """The same through the handlers of gRPC, whose invisible times are longer."""

    pauses_s = (0, 0, 0.01, 4)
    lasts_s = 3 * LEAST_S

    def __init__(self, disk: MemoryDisk, seed: int, rounds: int) -> None:
        super().__init__(disk, seed, rounds)
        self._door: GrpcDoor | None = None
        self._held: list[Message] = []
        self._coin = random.Random(seed)

    def _open(self, engine: PopEngine) -> GrpcDoor:
        self._door = self._door or GrpcDoor(engine)
        return self._door

    async def _receive(self, engine: PopEngine) -> None:
        invisible_s = self._coin.choice((LEAST_S, LEAST_S + 3))
        began_ms = trio.current_time() * 1000
        for message in await self._open(engine).receive(invisible_s):
            self.done.out.append((len(self.disk.steps), message.body, int(began_ms + invisible_s * 1000)))
            self._held.append(message)

    async def _acknowledge(self, engine: PopEngine) -> None:
        self._coin.shuffle(self._held)
        for message in self._held[:3]:
            receipt = message.system_properties
            in_time = now_ms() < int(receipt.receipt_handle.split()[1]) + receipt.invisible_duration.ToMilliseconds()
            if await self._open(engine).acknowledge(message) and in_time:  # later it may have had no effect
                self.done.acknowledged[message.body] = len(self.disk.steps)
        del self._held[:3]

    async def _renew(self, engine: PopEngine) -> None:
        for message in self._held[:1]:
            began_ms, before = trio.current_time() * 1000, len(self.disk.steps)
            renewing = partial(self._open(engine).renew, message, LEAST_S)
            self.done.renewed.append((before, message.body, int(began_ms + LEAST_S * 1000)))
            if await renewing():
                self.done.out.append((len(self.disk.steps), message.body, int(began_ms + LEAST_S * 1000)))
            else:
                self.done.renewed.pop()


@pytest.mark.slow
def test_no_power_cut_brings_what_a_grpc_consumer_acknowledged() -> None:
    checked, failures = cut_everywhere(1, 30, 20, kind=GrpcWork)
    assert checked >= 20
    assert not failures, "\n".join(failures[:10])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
def test_no_power_cut_of_many_brings_what_a_grpc_consumer_acknowledged(seed: int) -> None:
    checked, failures = cut_everywhere(seed, 60, 300, kind=GrpcWork)
    print(f"seed {seed}: {checked} crash states")
    assert not failures, "\n".join(failures[:10])


@pytest.mark.soak
def test_a_disk_that_only_says_it_synced_breaks_the_promise_to_grpc_consumers() -> None:
    _, failures = cut_everywhere(3, 40, 40, lying=True, kind=GrpcWork)
    assert any("came again" in text for text in failures)
