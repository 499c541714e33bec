"""Real parts put together for tests: a gateway on a free port, a box with a real store, and waiting for both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from storage_driver.errors import Busy
from storage_driver.log.clock import wall_ms
from storage_driver.record import Message, encode_host
from storage_driver.store import MessageStore, StoreConfig, open_store
from uplink_spark.box.shipper import Uplink, make_uplink
from uplink_spark.centre.gateway import run_gateway
from uplink_spark.config import GatewayConfig, UplinkConfig

HOST = encode_host("127.0.0.1", 10911)
MIB = 1 << 20
EXPRESS_ONLY: dict[str, object] = {"express": ("alarm",), "when_full": "express_only", "max_lag_bytes": 6 * MIB}


def message(number: int, body_bytes: int = 100, topic: str = "T") -> Message:
    body = f"{number:08d}".encode().ljust(body_bytes, b".")
    return Message(topic, number % 4, body, b"KEYS\x01k", 0, 0, 1_700_000_000_000, HOST)


async def fill(store: MessageStore, count: int, body_bytes: int = 1000) -> None:
    """Append numbered messages and wait until they are durable, at the pace of the disk."""
    number = 0
    while number < count:
        try:
            store.put(message(number, body_bytes))
            number += 1
        except Busy:
            await store.wait_committed(store.end)
        if not number % 200:
            await store.wait_committed(store.end)
    await store.wait_committed(store.end)


async def overfill(store: MessageStore, uplink: Uplink, topics: Sequence[str]) -> None:
    """Append a message of almost 1 MiB to each topic, once express topics are known; then the quota has its look."""
    await until(lambda: bool(uplink.shipper.state.ledger.switches))
    for number, topic in enumerate(topics):
        store.put(message(number, MIB - 1000, topic=topic))
        await store.wait_committed(store.end)
    await uplink.shipper.quota.look()


async def until(done: Callable[[], bool], seconds: float = 60) -> None:
    with trio.fail_after(seconds):
        while not done():  # noqa: ASYNC110 - what is waited for has no event of its own
            await trio.sleep(0.005)


def store_config(root: Path) -> StoreConfig:
    return StoreConfig(root=root, store_host=HOST, segment_bytes=5 * MIB, max_message_bytes=1 * MIB)


@asynccontextmanager
async def gateway(landing: Path, port: int = 0, linger_ms: int = 20, **settings: object) -> AsyncIterator[int]:
    plain = GatewayConfig(landing=str(landing), listen=("127.0.0.1", port), linger_ms=linger_ms)
    config = replace(plain, **settings)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        _, bound = await nursery.start(partial(run_gateway, config, now_ms=wall_ms, used=lambda: 0.1))
        yield bound
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def box(root: Path, port: int, **settings: object) -> AsyncIterator[tuple[MessageStore, Uplink]]:
    async with (
        open_store(store_config(root), now_ms=wall_ms) as store,
        uplink_of(store, root, port, **settings) as uplink,
    ):
        yield store, uplink


@asynccontextmanager
async def uplink_of(store: MessageStore, root: Path, port: int, **settings: object) -> AsyncIterator[Uplink]:
    config = UplinkConfig(gateway=f"127.0.0.1:{port}", box="box-17", max_delay_s=0.05)
    uplink = make_uplink(store, replace(config, **settings), root, clock_ok=lambda: True)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(uplink.run)
        yield uplink
        nursery.cancel_scope.cancel()


def shipped(store: MessageStore, uplink: Uplink) -> Callable[[], bool]:
    return lambda: store.committed == store.end and uplink.shipper.state.ledger.receipted.log.covers(0, store.committed)


def log_of(store: MessageStore) -> bytes:
    """The durable log, blanks as zeros."""
    parts, at = [], 0
    while at < store.committed:
        part = store.read_log(at, 1 << 30)
        parts.append(part)
        at += len(part)
    return b"".join(parts)
