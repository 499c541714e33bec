"""A cable of some length: what comes at PORT (of the link) and PORT - 1 (of clients) reaches a box DELAY seconds later.

Arguments: PORT HOST TARGET_PORT DELAY. It runs in the namespace of the member that dials.
"""

import sys
from functools import partial

import trio

RECEIVE_BYTES, MOST = 65_536, 32 << 20  # bytes at once, and on their way in one direction


async def carry(source: trio.SocketStream, sink: trio.SocketStream, delay_s: float, scope: trio.CancelScope) -> None:
    """Pass on what comes, as late as the cable is long; the end of one direction is the end of both."""
    put, take = trio.open_memory_channel[tuple[float, bytes]](MOST // RECEIVE_BYTES)

    async def deliver() -> None:
        async for due, data in take:
            await trio.sleep_until(due)
            await sink.send_all(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deliver)
        while data := await source.receive_some(RECEIVE_BYTES):
            await put.send((trio.current_time() + delay_s, bytes(data)))
        nursery.cancel_scope.cancel()
    scope.cancel()


async def relay(host: str, port: int, delay_s: float, left: trio.SocketStream) -> None:
    """Carry one connection."""
    try:
        async with await trio.open_tcp_stream(host, port) as right, trio.open_nursery() as nursery:
            for source, sink in ((left, right), (right, left)):
                nursery.start_soon(carry, source, sink, delay_s, nursery.cancel_scope)
    except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    await trio.aclose_forcefully(left)


async def main(port: int, host: str, target: int, delay_s: float) -> None:
    async with trio.open_nursery() as nursery:
        for below in (0, 1):
            call = partial(relay, host, target - below, delay_s)
            await nursery.start(partial(trio.serve_tcp, call, port - below, host="127.0.0.1"))
        print("ready", flush=True)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
