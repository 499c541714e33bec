"""Request code → handler: whatever happens inside, there is an answer with a code."""

import time
from collections.abc import Callable

import pytest
import trio
import trio.testing

from appliance.requests import (
    LARGE,
    Answer,
    AsyncReply,
    Handle,
    RefusedWith,
    Reply,
    RequestPeer,
    Responder,
    merged,
    without,
)
from appliance.testing import FakePeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand, request
from netstack.wire.conversation import DeferredReply


def fine(request: RemotingCommand, peer: RequestPeer) -> Answer:
    return Reply(request.reply())


def response(answer: Answer) -> RemotingCommand:
    assert isinstance(answer, Reply)
    return answer.response


def raising(exc: Exception) -> Responder:
    def handle(request: RemotingCommand, peer: RequestPeer) -> Answer:
        raise exc

    return Responder({10: handle})


def test_refusals_and_faults_become_codes_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    peer = FakePeer()
    refused = raising(Refused(17, "no topic"))
    assert (response(refused(request(10), peer)).code, refused.statistics().refusals) == (17, {(10, 17): 1})
    with_fields = response(raising(RefusedWith(16, "no", {"a": "b"}))(request(10), peer))
    assert (with_fields.code, with_fields.ext) == (16, {"a": "b"})
    broken = raising(ZeroDivisionError("by zero"))
    answer = response(broken(request(10), peer))
    assert (answer.code, answer.remark, broken.statistics().faults) == (1, "ZeroDivisionError: by zero", 1)
    assert "event=request_failed code=10" in caplog.text
    assert caplog.records[-1].exc_info is not None


def test_a_request_that_fails_again_and_again_is_a_line_in_ten_seconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, broken = [0.0], raising(ZeroDivisionError("by zero"))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in range(1000):
        assert response(broken(request(10), FakePeer())).code == 1
    now[0] = 10.0
    broken(request(10), FakePeer())
    assert [record.getMessage().partition("left_out=")[2] for record in caplog.records] == ["", "999"]
    assert broken.statistics().faults == 1001


def test_a_disk_that_fails_is_a_line_of_the_log_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    answer = response(raising(OSError(5, "Input/output error"))(request(10), FakePeer()))
    assert (answer.code, answer.remark) == (1, "OSError: [Errno 5] Input/output error")
    assert "reason='OSError: [Errno 5] Input/output error'" in caplog.text
    assert caplog.records[-1].exc_info is None


async def test_a_handler_that_waits_is_guarded_as_well() -> None:
    async def fails() -> RemotingCommand | None:
        raise KeyError("x")

    async def refuses() -> RemotingCommand | None:
        raise Refused(22, "nothing")

    for run, code in ((fails, 1), (refuses, 22)):
        answer = Responder({10: lambda request, peer, run=run: AsyncReply(run, pull=True)})(request(10), FakePeer())  # type: ignore[misc]
        assert isinstance(answer, AsyncReply)
        assert answer.pull
        found = await answer.run()
        assert isinstance(found, RemotingCommand)
        assert found.code == code


def test_an_unknown_code_is_answered_and_logged_once_per_peer(caplog: pytest.LogCaptureFixture) -> None:
    responder = Responder({})
    for _ in range(3):
        assert response(responder(request(9999), FakePeer())).code == 3
    assert caplog.text.count("code=9999") == 1
    assert responder.statistics().unknown == 3


def test_the_check_comes_before_the_handler() -> None:
    def check(request: RemotingCommand, peer: RequestPeer) -> None:
        raise Refused(16, "stranger")

    assert response(Responder({10: fine}, check=check)(request(10), FakePeer())).code == 16


def test_two_parts_cannot_claim_one_code_and_a_port_can_leave_some_out() -> None:
    with pytest.raises(ValueError, match=r"\[10\]"):
        merged({10: fine}, {10: fine, 11: fine})
    assert set(without(merged({10: fine}, {11: fine}), [11])) == {10}


class LargeRequests:
    """Requests with large bodies to one responder: what began, and what was answered, by their numbers."""

    def __init__(self, handle: Handle) -> None:
        self.begun: list[int] = []
        self.answered: list[int] = []
        self._handle = handle
        self._responder = Responder({200: self._noted})

    def _noted(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        self.begun.append(request.opaque)
        return self._handle(request, peer)

    async def ask(self, opaque: int, size: int = LARGE + 1) -> None:
        answer = self._responder(RemotingCommand(200, opaque=opaque, body=bytes(size)), FakePeer())
        if isinstance(answer, AsyncReply):
            response = await answer.run()
            assert isinstance(response, RemotingCommand)
            self.answered.append(response.opaque)


async def test_large_bodies_are_read_one_after_the_other() -> None:
    read = trio.Event()

    async def reading() -> RemotingCommand:
        await read.wait()
        return RemotingCommand(0, opaque=1)

    def handle(request: RemotingCommand, peer: RequestPeer) -> Answer:
        if request.opaque == 1:
            return AsyncReply(reading, needs_body=True)
        return Reply(RemotingCommand(0, opaque=request.opaque))

    requests = LargeRequests(handle)
    async with trio.open_nursery() as nursery:
        for opaque in (1, 2):
            nursery.start_soon(requests.ask, opaque)
            await trio.testing.wait_all_tasks_blocked()
        assert requests.begun == [1], "the second waits until the body of the first is read"
        await requests.ask(3, LARGE)
        assert (requests.begun, requests.answered) == ([1, 3], []), "a small one waits for nobody"
        read.set()
    assert (requests.begun, requests.answered) == ([1, 3, 2], [1, 2])


def test_what_waits_for_messages_with_a_large_body_is_not_counted_as_under_way() -> None:
    """Three of 12 MB would stop all readers for five minutes."""

    async def never() -> RemotingCommand:
        await trio.sleep_forever()
        raise AssertionError

    for code in (RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION):
        responder = Responder({code: lambda request, peer: AsyncReply(never, pull=True)})
        answer = responder(RemotingCommand(code, body=bytes(LARGE + 1)), FakePeer())
        assert isinstance(answer, AsyncReply)
        assert answer.pull


async def test_what_an_answer_waits_for_before_and_after_its_body_is_read_keeps_no_other_large_body_waiting() -> None:
    allowed, saved, order = trio.Event(), trio.Event(), list[str]()

    async def after(told: RemotingCommand | bytes | None) -> RemotingCommand | bytes | None:
        order.append("read")
        await saved.wait()
        return told

    async def reading() -> RemotingCommand:
        order.append("reading")
        return RemotingCommand(0, opaque=1)

    def handle(request: RemotingCommand, peer: RequestPeer) -> Answer:
        if request.opaque == 1:
            return AsyncReply(reading, needs_body=len(request.body) > LARGE, before=allowed.wait, after=after)
        return Reply(RemotingCommand(0, opaque=request.opaque))

    for size in (LARGE + 1, 10):
        order.clear()
        allowed, saved, requests = trio.Event(), trio.Event(), LargeRequests(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(requests.ask, 1, size)
            await trio.testing.wait_all_tasks_blocked()
            await requests.ask(2)
            assert (order, requests.answered) == ([], [2])
            allowed.set()
            await trio.testing.wait_all_tasks_blocked()
            await requests.ask(3)
            assert order == ["reading", "read"]
            saved.set()
        assert requests.answered == [2, 3, 1]


async def test_an_answer_that_waits_with_its_body_read_keeps_no_other_large_body_waiting() -> None:
    wakes: list[Callable[[str | None], None]] = []
    asked = trio.Event()

    async def asking() -> RemotingCommand:
        await asked.wait()
        return RemotingCommand(0, opaque=2)

    def handle(request: RemotingCommand, peer: RequestPeer) -> Answer:
        if request.opaque == 1:
            answer = RemotingCommand(0, opaque=1)
            return DeferredReply(lambda mark, wake: wakes.append(wake), 5, answer, lambda reason: RemotingCommand(7))
        return AsyncReply(asking) if request.opaque == 2 else Reply(RemotingCommand(0, opaque=3))

    requests = LargeRequests(handle)
    async with trio.open_nursery() as nursery:
        for opaque in (1, 2, 3):
            nursery.start_soon(requests.ask, opaque)
            await trio.testing.wait_all_tasks_blocked()
        assert (requests.begun, requests.answered) == ([1, 2, 3], [3])
        wakes[0](None)
        asked.set()
    assert sorted(requests.answered) == [1, 2, 3]
