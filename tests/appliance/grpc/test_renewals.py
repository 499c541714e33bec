"""Leases of push consumers are renewed in time, for three hours, and given back when their client goes."""

import trio
import trio.testing

from appliance.broker.pop.pop_queue import PopKey
from appliance.broker.pop.pop_table import Handle, Renewed
from appliance.grpc.renewals import BEFORE_S, GIVEN_BACK_MS, INVISIBLE_MS, LONGEST_S, Leases, keep_renewing
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from storage_driver.record import MessageQueue

HANDLE: Handle = (PopKey("G", MessageQueue("T", 0)), 7, 1000)


def connection() -> Peer:
    return Peer(1, ("10.0.0.1", 5), ("10.0.0.2", 8081), Outbox())


async def test_a_lease_is_renewed_before_it_ends_until_the_client_has_done(autojump_clock: object) -> None:
    seen = list[tuple[float, int]]()

    def renew(handle: Handle, time_ms: int) -> Renewed:
        seen.append((trio.current_time(), time_ms))
        return Renewed(1000, 0, 1)

    async with trio.open_nursery() as nursery:
        leases = Leases(renew)
        nursery.start_soon(keep_renewing, lambda: [leases])
        began = trio.current_time()
        leases.add(HANDLE, connection())
        await trio.sleep(200)
        gaps = [after[0] - before[0] for before, after in zip([(began, 0), *seen], seen, strict=False)]
        assert all(gap <= INVISIBLE_MS / 1000 - BEFORE_S + 5 for gap in gaps)
        assert len(seen) >= 4
        leases.drop(HANDLE)
        count = len(seen)
        await trio.sleep(200)
        assert len(seen) == count
        leases.add(HANDLE, connection())
        leases.give_back()
        assert (seen[-1][1], len(leases)) == (GIVEN_BACK_MS, 0)
        nursery.cancel_scope.cancel()


async def test_a_lease_ends_after_three_hours_and_when_the_message_is_gone(autojump_clock: object) -> None:
    held, gone = Leases(lambda *_: Renewed(1000, 0, 1)), Leases(lambda *_: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_renewing, lambda: [held, gone])
        held.add(HANDLE, connection())
        gone.add(HANDLE, connection())
        await trio.sleep(70)
        assert (len(held), len(gone)) == (1, 0)
        await trio.sleep(LONGEST_S)
        assert len(held) == 0
        nursery.cancel_scope.cancel()


async def test_what_was_sent_on_a_connection_that_has_ended_is_not_renewed_though_the_client_lives(
    autojump_clock: object,
) -> None:
    renewed = list[Handle]()

    def renew(handle: Handle, time_ms: int) -> Renewed:
        renewed.append(handle)
        return Renewed(1000, 0, 1)

    leases, ended, lives = Leases(renew), connection(), connection()
    other: Handle = (HANDLE[0], 8, 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_renewing, lambda: [leases])
        leases.add(HANDLE, ended)
        leases.add(other, lives)
        await trio.sleep(50)
        assert renewed == [HANDLE, other]
        ended.end("reset")
        await trio.sleep(INVISIBLE_MS / 1000)
        assert (len(leases), set(renewed[2:])) == (1, {other}), "its time has run out"
        nursery.cancel_scope.cancel()
