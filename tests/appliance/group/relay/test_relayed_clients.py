"""A leader and what members bring: only within its limits, only while it serves, and only what is a client's."""

from functools import partial

import pytest
import trio
import trio.testing

from appliance.group.links.frames import RELAY, LinkFrameDecoder, encode_frame
from appliance.group.links.link import LinkEnded
from appliance.group.relay import relayed_clients
from appliance.group.relay.relay_frame import BUSY, SERVED, RelayedClient
from appliance.group.relay.relayed_clients import RelayedClients, RelayedStream
from netstack.grpc.connection import GrpcServing
from netstack.grpc.testing import GrpcTestClient
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.server import Brought, serve_connections
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.links.test_links import Member, dialed, serving
from tests.appliance.group.relay.relaying import ECHO, Seen
from tests.waiting import until
from uplink_spark.wire.tls import FEED_BYTES, TlsStream

pytestmark = [pytest.mark.slow, needs_openssl]
CLIENT = RelayedClient(("10.1.0.77", 40_001), ("10.1.0.12", 8081))


async def said(member: Member, by: Member, frame: bytes) -> tuple[bytes, TlsStream]:
    """Return what a member answers to a first frame, and the connection."""
    stream = await dialed(member, by.tls)
    await stream.send_all(frame)
    return await stream.receive_some(1), stream


async def test_who_comes_before_the_broker_waits_for_it_and_no_more_than_some_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relayed_clients, "MOST_WAITING", 1)
    monkeypatch.setattr(relayed_clients, "WAIT_S", 1.0)
    a, b = Member("a"), Member("b")
    a.relayed = relayed = RelayedClients()
    async with serving(a, b, dial=False), trio.open_nursery() as nursery:
        nursery.start_soon(said, a, b, CLIENT.encode())
        await until(lambda: relayed._waiting == 1)
        assert (await said(a, b, CLIENT.encode()))[0] == BUSY, "too many"
        assert relayed._waiting == 1, "the first one waits yet"
        await until(lambda: a.refused() == {"relay": 2})
        assert relayed._waiting == 0


async def test_a_member_brings_clients_within_the_limits_of_their_addresses() -> None:
    a, b, served = Member("a"), Member("b"), Seen()
    a.relayed = relayed = RelayedClients()
    governor, limits = Governor(Limits(connections_per_address=3)), 3
    async with serving(a, b, dial=False) as nursery:
        connect, allow = GrpcServing(served.service()).connect, lambda address: address != "10.1.0.66"
        serve = await nursery.start(lambda task_status: serve_connections(
            (), connect, governor, allow=allow, task_status=task_status
        ))  # fmt: skip
        nursery.start_soon(relayed.serve_by, serve)
        streams = [(await said(a, b, CLIENT.encode()))[1] for _ in range(10)]
        await until(lambda: governor.counted["refused_limits.connections_per_address"] == 10 - limits)
        assert governor.statistics().connections == limits
        answer, stream = await said(a, b, CLIENT._replace(remote=("10.1.0.66", 1)).encode())
        assert (answer, await stream.receive_some()) == (SERVED, b""), "its address is not allowed"
        assert governor.counted["refused_access"] == 1
        client = GrpcTestClient(AsStream(streams[0]))
        nursery.start_soon(client.run)
        assert (await client.call(ECHO, b"said")).messages == [b"said"]
        assert served.seen == [(CLIENT.remote, CLIENT.local, False)]
        for each in streams:
            await each.aclose()
        await until(lambda: governor.statistics().connections == 0)
        assert not governor.slots._slots


async def test_what_a_member_brings_ends_with_it_and_nothing_of_others() -> None:
    a, b, c = Member("a"), Member("b"), Member("c")
    a.relayed = relayed = RelayedClients()
    governor = Governor()
    async with serving(a, b, c, dial=False) as nursery:
        connect = GrpcServing(Seen().service()).connect
        nursery.start_soon(said, a, b, CLIENT.encode())  # it waits
        await until(lambda: relayed._waiting == 1)
        relayed.left("b")
        await until(lambda: relayed._waiting == 0)
        serve = await nursery.start(partial(serve_connections, (), connect, governor))
        nursery.start_soon(relayed.serve_by, serve)
        for end in (partial(relayed.left, "b"), partial(relayed.know, {"c": 1})):
            _, by_b = await said(a, b, CLIENT.encode())
            _, by_c = await said(a, c, CLIENT.encode())
            await until(lambda: governor.statistics().connections == 2)
            end()
            await until(lambda: governor.statistics().connections == 1)
            await by_c.aclose()
            await until(lambda: governor.statistics().connections == 0)
            await by_b.aclose()
        assert set(relayed._brought) == {"c"}


class Slow:
    """A connection on which the first byte leaves while what serves ends."""

    remote_host = "10.1.0.12"
    descriptor = 0

    def __init__(self, serving: trio.CancelScope) -> None:
        self._serving = serving

    async def send_all(self, data: bytes) -> None:
        self._serving.cancel()
        await trio.testing.wait_all_tasks_blocked()


async def test_a_client_that_comes_as_the_broker_ends_is_not_given_to_it() -> None:
    relayed, given = RelayedClients(), list[Brought]()

    async def serve(brought: Brought) -> None:
        given.append(brought)

    async def serve_by() -> None:
        with scope:
            await relayed.serve_by(serve)

    [frame] = LinkFrameDecoder(most_record_bytes=1000, with_bytes=frozenset()).feed(CLIENT.encode())
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(serve_by)
        await until(lambda: relayed._serve is not None)
        with pytest.raises(LinkEnded, match="does not serve"):
            await relayed.take("b", Slow(scope), frame)  # type: ignore[arg-type]
    assert not given


class Pieces:
    """What a connection between members is given."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    async def send_all(self, data: memoryview) -> None:
        self.given.append(bytes(data))


async def test_openssl_is_given_little_at_a_time() -> None:
    pieces, data = Pieces(), bytes(range(256)) * 4096
    for each in (data, memoryview(data)[7:], b"", b"little"):
        pieces.given.clear()
        await RelayedStream(pieces).send_all(each)  # type: ignore[arg-type]
        assert b"".join(pieces.given) == each
        assert max(map(len, pieces.given), default=0) <= FEED_BYTES


async def test_a_frame_with_no_address_ends_the_connection_and_is_counted() -> None:
    a, b = Member("a"), Member("b")
    a.relayed = RelayedClients()
    async with serving(a, b, dial=False):
        for head in ({}, {"host": "x" * 5000, "port": 1, "at": "10.1.0.12", "at_port": 2, "tls": 0}):
            assert (await said(a, b, encode_frame(RELAY, head)))[0] == b""
        await until(lambda: a.refused() == {"garbage": 2})
        assert set(a.links._told._last) == {("127.0.0.1", "garbage")}, (
            "one line for both: the port is another each time"
        )


def test_all_boxes_take_clients_until_one_says_otherwise() -> None:
    relayed = RelayedClients()
    assert relayed.all_take
    relayed.heard("b", True)
    relayed.heard("c", False)
    assert (relayed.takes("b"), relayed.takes("c"), relayed.takes("d"), relayed.all_take) == (True, False, True, False)
    relayed.heard("c", True)
    assert relayed.all_take
    relayed.heard("c", False)
    relayed.know({"b": 1})
    assert relayed.all_take, "c is no longer a member"


class AsStream(trio.abc.Stream):
    """A stream of TLS to what wants trio's."""

    def __init__(self, stream: TlsStream) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await self._stream.aclose()
