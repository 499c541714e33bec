"""From handlers to methods: refusals of any kind become a status inside the response."""

from collections import Counter
from typing import Any

import pytest

from appliance.grpc.clients import ClientSessions
from appliance.grpc.methods import Later, decoded, unary
from appliance.grpc.outcome import Rejection, ok
from appliance.grpc.refusals import Refusals
from netstack.errors import Refused
from netstack.grpc.calls import Answer, AnswerTask, Call, Deferred
from netstack.grpc.status import CallFailed
from netstack.grpc.v2.definition_pb2 import Code
from netstack.grpc.v2.service_pb2 import HeartbeatRequest, HeartbeatResponse
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from storage_driver.errors import Busy, Full


class Open:
    """A gate that lets everybody in."""

    def opens_data(self, address: str, /) -> bool:
        return True

    def takes_copies(self, peer: Peer, /) -> bool:
        return True

    def white_listed(self, address: str, /) -> None:
        return None

    def proven(self, *_: Any) -> Any:
        raise AssertionError


def answer(handle: Any, refusals: Counter[tuple[str, str]] | None = None) -> Answer:
    sessions = ClientSessions(Open(), Open(), lambda handle, time_ms: None)
    counted = Counter() if refusals is None else refusals
    method = unary(HeartbeatRequest, HeartbeatResponse, handle, sessions, refusals=Refusals(counted))
    peer = Peer(1, ("10.0.0.1", 5), ("10.0.0.2", 8081), Outbox())
    return method.handle(Call(peer, {b"x-mq-client-id": b"c@1"}, lambda messages, now: True, 0.0), b"")


def code_of(raw: Answer) -> int:
    assert isinstance(raw, bytes)
    return int(HeartbeatResponse.FromString(raw).status.code)


async def test_a_response_and_every_refusal_is_a_message() -> None:
    def raising(exc: Exception) -> Any:
        def handle(*_: Any) -> Any:
            raise exc

        return handle

    assert code_of(answer(lambda *_: HeartbeatResponse(status=ok()))) == Code.OK
    for exc, code in (
        (Rejection(Code.ILLEGAL_TOPIC, "x"), Code.ILLEGAL_TOPIC),
        (Refused(17, "x"), Code.TOPIC_NOT_FOUND),
        (Busy(900), Code.TOO_MANY_REQUESTS),
        (Full("full"), Code.INTERNAL_SERVER_ERROR),
    ):
        refusals: Counter[tuple[str, str]] = Counter()
        assert code_of(answer(raising(exc), refusals)) == code
        assert refusals == {("Heartbeat", Code.Name(code)): 1}
    with pytest.raises(ZeroDivisionError):
        answer(raising(ZeroDivisionError()))


async def test_what_waits_for_the_disk_or_is_written_already_passes_as_it_is() -> None:
    message = HeartbeatResponse(status=ok()).SerializeToString()
    waiting = Deferred(lambda mark, wake: None, 7, message, str.encode)
    assert answer(lambda *_: waiting) is waiting
    assert answer(lambda *_: message) is message


async def test_what_waits_in_a_task_may_be_refused_there() -> None:
    async def refuse() -> Any:
        raise Refused(16, "no")

    found = answer(lambda *_: Later(refuse))
    assert isinstance(found, AnswerTask)
    assert code_of(await found.run()) == Code.FORBIDDEN


def test_bytes_that_are_no_message_end_the_call() -> None:
    with pytest.raises(CallFailed):
        decoded(HeartbeatRequest, b"\xff\xff")
