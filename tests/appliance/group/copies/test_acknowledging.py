"""Clients wait for other disks as long as they are told to, and hear why it was in vain."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from appliance.broker.intake import not_durable
from appliance.group.copies.acknowledging import Acknowledgements
from netstack.wire.codes import ResponseCode
from storage_driver.log.marks import Mark


async def test_a_client_hears_of_the_commit_or_after_a_while_why_there_is_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    mark, told = Mark(0), dict[int, str | None]()
    waiting = Acknowledgements([mark], wait_s=3.0, why=lambda: "b is not connected")

    def wait(log_offset: int) -> None:
        mark.when(log_offset, lambda reason: told.update({log_offset: reason}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run)
        wait(10)
        await trio.sleep(2)
        wait(20)
        wait(30)
        mark.move(20)
        assert told == {10: None, 20: None}
        await trio.sleep(2.9)
        assert told == {10: None, 20: None}, "the third one has waited 2.9 s"
        await trio.sleep(0.3)
        assert told[30] == "no other disk has the message after 3000 ms: b is not connected"
        mark.move(30)
        mark.fail("gone")
        assert (len(told), waiting.expired) == (3, 1), "nobody hears twice"
        wait(30)
        assert told[30] is None, "what is committed is answered at once"
        nursery.cancel_scope.cancel()
    refused = not_durable("no other disk has the message after 3000 ms: b is not connected")
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert refused.remark.startswith("service not available now: no other disk has the message")


@asynccontextmanager
async def waited_at(*, wait_s: float) -> AsyncIterator[tuple[Mark, Acknowledgements]]:
    mark = Mark(0)
    waiting = Acknowledgements([mark], wait_s=wait_s, why=str)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run)
        yield mark, waiting
        nursery.cancel_scope.cancel()


async def test_who_asks_again_for_the_same_message_waits_as_long_as_the_first_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told = list[str]()
    async with waited_at(wait_s=3.0) as (mark, _):
        mark.when(10, lambda reason: told.append("first"))
        await trio.sleep(2)
        mark.when(10, lambda reason: told.append("again"))
        await trio.sleep(1.5)
        assert told == ["first"]
        await trio.sleep(1.2)
        assert told == ["first"]
        await trio.sleep(0.6)
        assert told == ["first", "again"]


async def test_who_waits_still_when_others_behind_were_given_up_is_not_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told = list[str]()
    async with waited_at(wait_s=3.0) as (mark, _):
        mark.when(10, lambda reason: told.append("kept"))
        mark.when(20, lambda reason: told.append("cut"))
        await trio.sleep(1)
        mark.fail("cut at 15", above=15)
        assert told == ["cut"]
        await trio.sleep(3.2)
        assert told == ["cut", "kept"]


async def test_no_counts_are_kept_while_nobody_waits(autojump_clock: trio.testing.MockClock) -> None:
    async with waited_at(wait_s=3.0) as (mark, waiting):
        for at in range(1, 20):
            mark.when(at, lambda reason: None)
            await trio.sleep(0.01)
            mark.move(at)
            await trio.sleep(0.2)
        await trio.sleep(10)
        assert not waiting._counts


async def test_who_comes_right_after_a_look_at_rest_waits_no_longer_than_he_is_to(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told = list[str]()
    async with waited_at(wait_s=2.9) as (mark, _):
        await trio.sleep(0.001)
        mark.when(10, lambda reason: told.append("first"))
        await trio.sleep(2.95)
        assert told == ["first"]
