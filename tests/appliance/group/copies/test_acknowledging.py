"""Clients wait for other disks as long as they are told to, and hear why it was in vain."""

import trio
import trio.testing

from appliance.broker.intake import not_durable
from appliance.group.copies.acknowledging import Acknowledgements
from netstack.wire.codes import ResponseCode
from storage_driver.log.marks import Mark, Wake


async def test_a_client_hears_of_the_commit_or_after_a_while_why_there_is_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    mark, told = Mark(0), dict[int, str | None]()

    def when(log_offset: int, wake: Wake) -> None:
        mark.when(log_offset, wake)

    waiting = Acknowledgements(when, wait_s=3.0, why=lambda: "b is not connected")

    def wait(log_offset: int) -> None:
        waiting.when(log_offset, lambda reason: told.update({log_offset: reason}))

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
        await trio.sleep(0.2)
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


async def test_what_was_answered_is_not_kept(autojump_clock: trio.testing.MockClock) -> None:
    mark = Mark(0)

    def when(log_offset: int, wake: Wake) -> None:
        mark.when(log_offset, wake)

    waiting = Acknowledgements(when, wait_s=3.0, why=str)
    for at in range(1, 10_000):
        waiting.when(at, lambda reason: None)
        mark.move(at)
    assert len(waiting._waiting) <= 1
