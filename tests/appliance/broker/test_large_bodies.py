"""A body that a thread reads leaves nothing behind, also when it is refused."""

import gc
import threading
import weakref

import pytest

from appliance.broker.large_bodies import read_in_thread
from netstack.errors import Refused
from netstack.wire.command import RemotingCommand


class Kept(bytes):
    """Bytes that can be watched, by what hangs on them."""

    def __init__(self, _: bytes) -> None:
        self.part: set[int] = set()


async def test_another_thread_reads_and_the_request_has_no_body_then() -> None:
    request, threads = RemotingCommand(34, body=b"abc"), list[int]()

    def read(body: bytes) -> int:
        threads.append(threading.get_ident())
        return len(body)

    assert (await read_in_thread(read, request), request.body) == (3, b"")
    assert threads != [threading.get_ident()]


async def test_a_refused_body_is_freed_at_once() -> None:
    def refuse(body: bytes) -> int:
        try:
            raise ValueError(body)
        except ValueError as exc:
            raise Refused(1, "illegal") from exc

    body = Kept(b"abc")
    request, watched = RemotingCommand(34, body=body), weakref.ref(body.part)
    del body
    gc.disable()
    try:
        with pytest.raises(Refused, match="illegal"):
            await read_in_thread(refuse, request)
        assert watched() is None, "the traceback of a thread keeps what its frames had until the collector comes"
    finally:
        gc.enable()
