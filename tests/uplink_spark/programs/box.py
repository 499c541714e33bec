"""A box as a process of its own: a real store that appends numbered messages and ships them, then says `done`.

    box.py STORE PORT COUNT [--mark M] [--bytes N] [--lag BYTES] [--segment BYTES]

--lag: the quota drops the oldest files as soon as more than that is unshipped. KILL_AT=sync:3 kills the process in
front of the third sync of a file of the log, KILL_AT=rename:2 right after the second replacement of the identity: where
the product's own steps (UPLINK_STOP_AT) do not reach, since storage knows no uplink.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path

import trio

from storage_driver.log.clock import wall_ms
from storage_driver.record import Message, MessageQueue, encode_host
from storage_driver.store import MessageStore, StoreConfig, open_store
from uplink_spark.box import quota
from uplink_spark.box.shipper import Uplink, make_uplink
from uplink_spark.config import UplinkConfig

HOST = encode_host("127.0.0.1", 10911)


def body(number: int, mark: str, size: int) -> bytes:
    return f"{mark}{number:07d}".encode() * (size // 8)


async def append(store: MessageStore, options: argparse.Namespace) -> None:
    """Append messages in small durable groups until `count` are stored; a restart goes on where the log ends."""
    queue = MessageQueue("T", 0)
    while (number := store.max_offset(queue)) < options.count:
        for n in range(number, min(number + 20, options.count)):
            text = body(n, options.mark, options.bytes)
            store.put(Message("T", 0, text, b"", 0, 0, 1_700_000_000_000, HOST))
        await store.wait_committed(store.end)


async def finish(store: MessageStore, uplink: Uplink) -> None:
    """Wait until the centre has everything, data or declared losses, and note that it has."""
    ledger = uplink.shipper.state.ledger
    while ledger.gaps.undelivered() or ledger.unshipped(0, store.committed):  # noqa: ASYNC110
        await trio.sleep(0.01)
    await uplink.shipper.state.workers.in_thread(ledger.save)
    uplink.shipper.state.step("B5")
    print(f"done durable={store.committed} first={store.first}", flush=True)


async def main(options: argparse.Namespace) -> None:
    config = StoreConfig(root=options.store, store_host=HOST, segment_bytes=options.segment, max_message_bytes=100_000)
    settings = UplinkConfig(
        f"127.0.0.1:{options.port}", "box-17", max_delay_s=0.02, piece_bytes=65536, max_lag_bytes=options.lag
    )
    async with open_store(config, now_ms=wall_ms) as store:
        uplink = make_uplink(store, settings, options.store, clock_ok=lambda: True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(uplink.run)
            await append(store, options)
            if options.lag:
                await store.prove()  # queue files, which say what is lost, are written
                await uplink.shipper.quota.look()
            await finish(store, uplink)
            nursery.cancel_scope.cancel()


def die_at(name: str, matches: Callable[[str], bool], count: int) -> None:
    """Let os.NAME kill this process: a sync in front of the call, a rename after it."""
    real, left = getattr(os, name), [count]

    def call(*arguments: object) -> object:
        path = os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fdatasync" else str(arguments[-1])
        left[0] -= matches(path)
        if left[0] <= 0:
            if name == "rename":
                real(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)

    setattr(os, name, call)


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--mark", default="0")
    parser.add_argument("--bytes", type=int, default=480)
    parser.add_argument("--lag", type=int, default=0)
    parser.add_argument("--segment", type=int, default=300_000)  # many ends of files
    return parser.parse_args()


if __name__ == "__main__":
    quota.DISK_MARK = 2.0  # how full the disk of this machine is, is not what a test is about
    what, _, number = os.environ.get("KILL_AT", "").partition(":")
    if what == "sync":
        die_at("fdatasync", lambda path: "/commitlog/" in path, int(number))
    elif what == "rename":
        die_at("rename", lambda path: path.endswith("identity.json"), int(number))
    trio.run(main, options_of())
