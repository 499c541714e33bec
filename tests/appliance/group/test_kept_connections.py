"""Requests of a connection that outlasts the standings of a member."""

from functools import partial

import pytest
import trio

from appliance.broker.large_bodies import read_in_thread
from appliance.group.kept_connections import MOST_WAITING, NOT_NOW, SENT_S, HandlerSwitch
from appliance.requests import Answer, AsyncReply, DeferredReply, Handle, Reply, RequestPeer, settled
from appliance.testing import FakePeer
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from netstack.wire.command import RemotingCommand
from tests.appliance.box import send


def named(name: str) -> RemotingCommand:
    return send("T").reply(remark=name)


def ready(name: str) -> Answer:
    return Reply(named(name))


def answered_by(answer: RemotingCommand | bytes | None) -> str | None:
    assert isinstance(answer, RemotingCommand)
    return answer.remark


async def asked(switch: HandlerSwitch) -> str | None:
    return answered_by(await settled(switch(send("T"), FakePeer())))


async def test_a_standing_answers_at_once() -> None:
    switch = HandlerSwitch(str)
    switch.use(lambda request, peer: ready("first"))
    assert isinstance(switch(send("T"), FakePeer()), Reply)
    assert await asked(switch) == "first"


async def test_what_comes_between_two_standings_waits_for_the_next(autojump_clock: trio.testing.MockClock) -> None:
    switch, found = HandlerSwitch(str), list[str | None]()

    async def ask() -> None:
        found.append(await asked(switch))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        switch.use(
            lambda request, peer: DeferredReply(lambda mark, wake: wake(None), 1, named("a"), lambda why: named(why))
        )
    assert found == ["a"]


async def test_who_waited_in_vain_hears_what_the_next_standing_waits_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answer = await settled(HandlerSwitch(lambda: "b cannot be reached")(send("T"), FakePeer()))
    assert isinstance(answer, RemotingCommand)
    assert (answer.code, answer.remark) == (14, f"{NOT_NOW}: b cannot be reached")


async def test_what_is_under_way_when_a_standing_ends_is_asked_of_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    switch, found = HandlerSwitch(str), list[str | None]()

    async def never() -> RemotingCommand:
        await trio.sleep_forever()
        raise AssertionError

    async def ask() -> None:
        found.append(await asked(switch))

    switch.use(lambda request, peer: AsyncReply(never))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        switch.leave()
        await trio.testing.wait_all_tasks_blocked()
        assert not found
        switch.use(lambda request, peer: ready("next"))
    assert found == ["next"]


async def test_a_pull_that_has_let_go_of_its_fields_is_asked_of_the_next_standing_with_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    switch, asked = HandlerSwitch(str), list[dict[str, str]]()

    async def never() -> RemotingCommand:
        await trio.sleep_forever()
        raise AssertionError

    def parks(request: RemotingCommand, peer: RequestPeer) -> Answer:
        asked.append(request.ext)
        request.ext = {}  # as pulls that wait do, which are many
        return AsyncReply(never, pull=True)

    def ends(request: RemotingCommand, peer: RequestPeer) -> Answer:
        asked.append(request.ext)
        return ready("next")

    async with trio.open_nursery() as nursery:
        for _ in range(2):  # the second comes between two standings
            nursery.start_soon(settled, switch(RemotingCommand(11, ext={"topic": "T"}), FakePeer()))
            await trio.testing.wait_all_tasks_blocked()
            switch.use(parks)
            await trio.testing.wait_all_tasks_blocked()
            switch.leave()
            await trio.testing.wait_all_tasks_blocked()
        switch.use(ends)
    assert asked == [{"topic": "T"}] * 5


@pytest.mark.parametrize("waits", [False, True], ids=["to a standing", "between two"])
async def test_a_large_body_that_a_thread_has_read_is_asked_of_each_standing(waits: bool) -> None:
    switch, read = HandlerSwitch(str), list[int]()

    async def later(request: RemotingCommand) -> RemotingCommand:
        read.append(await read_in_thread(len, request))
        await trio.sleep_forever()
        raise AssertionError

    def reads(request: RemotingCommand, peer: RequestPeer) -> Answer:
        return AsyncReply(partial(later, request), needs_body=True)

    if not waits:
        switch.use(reads)
    answer = switch(RemotingCommand(34, body=bytes(100_000)), FakePeer())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(settled, answer)
        for count in range(1, 4):
            switch.use(reads)
            while len(read) < count:  # noqa: ASYNC110 a thread has no event
                await trio.sleep(0.001)
            switch.leave()
        nursery.cancel_scope.cancel()
    assert read == [100_000] * 3


def test_what_waits_for_a_standing_and_is_not_counted_keeps_no_body() -> None:
    for code in (11, 200050):
        pull = RemotingCommand(code, body=bytes(1000))
        answer = HandlerSwitch(str)(pull, FakePeer())
        assert isinstance(answer, AsyncReply)
        assert (answer.pull, pull.body) == (True, b"")


async def test_a_send_that_waited_is_refused_before_its_client_repeats_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    switch, answers = HandlerSwitch(str), list[RemotingCommand | bytes | None]()

    async def never() -> RemotingCommand:
        await trio.sleep_forever()
        raise AssertionError

    async def ask() -> None:
        answers.append(await settled(switch(send("T"), FakePeer())))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(2)
        switch.use(lambda request, peer: AsyncReply(never))
    assert trio.current_time() - began == pytest.approx(SENT_S)
    assert isinstance(answers[0], RemotingCommand)
    assert answers[0].code == 14


async def test_who_asks_while_nothing_begins_is_refused_so_that_it_tries_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    switch = HandlerSwitch(str)
    answer = await settled(switch(send("T"), FakePeer()))
    assert isinstance(answer, RemotingCommand)
    assert answer.code == 14
    switch._waiting = MOST_WAITING
    refused = switch(send("T"), FakePeer())
    assert isinstance(refused, Reply)
    assert refused.response.code == 14


async def test_the_end_of_a_standing_lets_go_of_its_handler() -> None:
    switch = HandlerSwitch(str)
    asks: list[RequestPeer] = []

    def handle(request: RemotingCommand, peer: RequestPeer) -> Answer:
        asks.append(peer)
        return ready("first")

    switch.use(handle)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(switch.leave_at_end)
        nursery.cancel_scope.cancel()
    assert isinstance(switch(send("T"), FakePeer()), AsyncReply)
    assert not asks


async def test_a_connection_holds_nothing_of_standings_that_ended() -> None:
    peer = Peer(1, ("127.0.0.1", 1), ("127.0.0.1", 2), Outbox())
    switch, closed = HandlerSwitch(str), list[int]()

    def standing(number: int) -> Handle:
        def handle(request: RemotingCommand, peer: RequestPeer) -> Answer:
            peer.on_close(lambda: closed.append(number))
            return ready("")

        return handle

    for number in range(3):
        switch.use(standing(number))
        switch(send("T"), peer)
        switch.leave()
    peer.end("eof")
    assert closed == [2]
