"""Pieces of one connection: their window in pieces and raw bytes, and the memory that they hold."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from uplink_spark.centre.hub import Budget
from uplink_spark.centre.received import ReceivedPieces
from uplink_spark.config import GatewayConfig
from uplink_spark.errors import ProtocolError

CONFIG = GatewayConfig(landing="/nowhere", listen=("127.0.0.1", 0), window_pieces=3, window_bytes=1000)


async def came(pieces: ReceivedPieces, container: bytes) -> None:
    await pieces.admit(len(container))
    pieces.put(container)


async def test_pieces_are_verified_in_order_and_a_window_of_them_may_wait() -> None:
    pieces = ReceivedPieces(CONFIG, Budget(100))
    for container in (b"a", b"bb", b"ccc"):
        await came(pieces, container)
    with pytest.raises(ProtocolError, match="more than 3 pieces without a receipt"):
        await pieces.admit(1)
    assert await pieces.next() == (0, b"a")
    with pytest.raises(ProtocolError):
        await pieces.admit(1)
    pieces.settle(0, 1)
    await came(pieces, b"d")
    assert [await pieces.next() for _ in range(3)] == [(1, b"bb"), (2, b"ccc"), (5, b"d")], "a refused one is numbered"


async def test_who_verifies_waits_for_the_next_piece() -> None:
    pieces, got = ReceivedPieces(CONFIG, Budget(100)), list[tuple[int, bytes]]()

    async def verify() -> None:
        while len(got) < 2:
            got.append(await pieces.next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(verify)
        for container in (b"a", b"b"):
            await trio.testing.wait_all_tasks_blocked()
            await came(pieces, container)
    assert got == [(0, b"a"), (1, b"b")]


async def test_raw_bytes_have_a_window_that_one_large_piece_fills_alone() -> None:
    pieces = ReceivedPieces(CONFIG, Budget(100))
    await came(pieces, b"a")
    await pieces.next()
    assert pieces.fits(5000)
    pieces.offer(0, 600, 1)
    assert [pieces.fits(400), pieces.fits(401)] == [True, False]
    pieces.settle(0, 1, offered=True)
    assert pieces.fits(5000)


async def test_memory_comes_back_at_the_end_but_for_what_the_shard_holds() -> None:
    budget = Budget(100)
    pieces = ReceivedPieces(CONFIG, budget)
    for container in (b"a" * 10, b"b" * 20, b"c" * 30):
        await came(pieces, container)
    number, container = await pieces.next()
    pieces.offer(number, 50, len(container))
    assert budget.left == 40
    pieces.release()
    assert budget.left == 90
    pieces.settle(number, len(container), offered=True)
    assert budget.left == 100
