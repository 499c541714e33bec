"""A follower carries gRPC clients to the leader over real links: as they are, in bounds, while that one leads."""

import ssl
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

from appliance.group.leadership import LEADER, LeadershipState
from appliance.group.relay import relay as relay_module
from appliance.group.relay import relayed_clients
from appliance.group.relay.relayed_clients import RECEIVE_BYTES
from netstack.grpc.connection import GrpcServing
from netstack.grpc.testing import GrpcTestClient, enveloped, grpc_client
from netstack.serving.limits import Limits
from netstack.serving.tls import TlsConfig, TlsDoor, client_context
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.relay.relaying import ECHO, ELSEWHERE, SIZE, WAIT, Seen, relaying
from tests.netstack.serving.test_tls import make_certificate
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_openssl]
MIB = 1 << 20


async def test_a_client_of_a_follower_is_served_by_the_leader_as_it_came() -> None:
    served = Seen()
    async with relaying(served) as (pair, serve):
        await serve()
        pair.leadership.set(ELSEWHERE)
        async with grpc_client(pair.port_of_b) as client:
            assert (await client.call(ECHO, b"said")).messages == [b"said"]
            assert (await client.call(ECHO, b"x" * 3 * MIB)).messages == [b"x" * 3 * MIB]
            assert (await client.call(SIZE, str(3 * MIB).encode())).messages == [bytes(3 * MIB)]
            assert isinstance(client.stream, trio.SocketStream)
            local = ("127.0.0.1", pair.port_of_b)
            own = client.stream.socket.getsockname()
        assert served.seen[0] == (own, local, True), "a loopback client, of a box on this machine"
        await until(lambda: pair.at_a.statistics().connections == 0)
        await until(lambda: pair.at_b.counted["closed_eof"] == 1)


async def test_a_client_with_tls_has_the_followers_certificate_and_is_known_to_have_come_so(tmp_path: Path) -> None:
    served, door = Seen(), TlsDoor(TlsConfig(*make_certificate(tmp_path, "b")))
    async with relaying(served, tls=door) as (pair, serve):
        await serve()
        pair.leadership.set(ELSEWHERE)
        tcp = await trio.open_tcp_stream("127.0.0.1", pair.port_of_b)
        context = client_context()
        context.set_alpn_protocols(["h2"])
        stream = trio.SSLStream(tcp, context)
        async with trio.open_nursery() as nursery:
            client = GrpcTestClient(stream)
            nursery.start_soon(client.run)
            assert (await client.call(ECHO, b"said")).messages == [b"said"]
            assert served.seen[0][2]
            cert = ssl.PEM_cert_to_DER_cert((tmp_path / "b.pem").read_text())
            assert stream.getpeercert(binary_form=True) == cert
            nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(stream)


async def test_a_client_waits_for_a_leader_that_serves_and_connects_again_for_the_next() -> None:
    served = Seen()
    async with relaying(served) as (pair, serve), grpc_client(pair.port_of_b) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call, ECHO, b"first")
            await until(lambda: pair.relay._waiting == 1)
            pair.leadership.set(LeadershipState(LEADER, 2, "b", ""))  # not this box itself
            pair.leadership.set(ELSEWHERE)
            await until(lambda: pair.relayed._waiting == 1)
            await serve()
        assert [message for each in client.calls.values() for message in each.messages] == [b"first"]
        pair.leadership.set(ELSEWHERE._replace(term=4))
        assert (await client.call(ECHO, b"the same leader")).status == 0
        pair.leadership.set(LeadershipState())
        await client.closed.wait()
        await until(lambda: pair.at_b.counted["closed_leader"] == 1)
        pair.leadership.set(ELSEWHERE)
        async with grpc_client(pair.port_of_b) as again:
            assert (await again.call(ECHO, b"again")).messages == [b"again"]
            pair.leave()
            await again.closed.wait()


async def test_a_channel_at_an_address_that_moves_is_ready_before_there_is_a_leader() -> None:
    async with relaying(Seen(), floating="127.0.0.1") as (pair, serve), grpc_client(pair.port_of_b) as client:
        await until(lambda: pair.relay._waiting == 1)
        stream = await trio.open_tcp_stream("127.0.0.1", pair.port_of_b)
        assert await stream.receive_some() == relay_module.NO_SETTINGS
        await stream.aclose()
        await serve()
        pair.leadership.set(ELSEWHERE)
        assert (await client.call(ECHO, b"said")).messages == [b"said"], "the leader's settings come behind"


async def test_who_waits_at_a_box_that_leads_no_longer_goes_to_the_next_at_once() -> None:
    async with relaying(Seen()) as (pair, _), grpc_client(pair.port_of_b):
        pair.leadership.set(ELSEWHERE)  # a, whose standing is over
        await until(lambda: pair.relayed._waiting == 1)
        pair.leadership.set(ELSEWHERE._replace(leader="c"))
        await until(lambda: pair.asked[:2] == ["a", "c"])
        assert pair.relayed._waiting == 1, "a has not answered"


async def test_a_client_is_closed_when_nobody_leads_in_time_and_more_than_some_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "WAIT_S", 0.3)
    monkeypatch.setattr(relay_module, "MOST_WAITING", 1)
    async with relaying(Seen()) as (pair, _), grpc_client(pair.port_of_b) as first:
        await until(lambda: pair.relay._waiting == 1)
        async with grpc_client(pair.port_of_b) as second:
            await second.closed.wait()
            assert not first.closed.is_set()
        await first.closed.wait()
        await until(lambda: pair.at_b.counted["closed_unserved"] == 2)
        assert pair.relay._waiting == 0


async def test_a_leader_has_the_time_of_a_link_and_of_slow_links(monkeypatch: pytest.MonkeyPatch) -> None:
    async with relaying(Seen()) as (pair, serve):
        await serve()
        pair.cable_s = 1.2  # a packet takes 300 ms each way
        pair.leadership.set(ELSEWHERE)
        async with grpc_client(pair.port_of_b) as client:
            assert (await client.call(ECHO, b"said")).messages == [b"said"]
    monkeypatch.setattr(relay_module, "DIAL_S", 0.2)
    monkeypatch.setattr(relay_module, "WAIT_S", 0.4)
    async with relaying(Seen(), scale=10) as (pair, serve):
        await serve()
        pair.cable_s = 0.5
        pair.leadership.set(ELSEWHERE)
        async with grpc_client(pair.port_of_b) as client:
            assert (await client.call(ECHO, b"said")).messages == [b"said"]


@pytest.fixture
def soon_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a follower answer soon where it does not reach the leader."""
    monkeypatch.setattr(relay_module, "WAIT_S", 1.0)
    monkeypatch.setattr(relay_module, "DIAL_S", 0.9)


@pytest.mark.usefixtures("soon_answered")
async def test_who_does_not_reach_the_leader_answers_as_a_follower_and_not_for_one_that_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relayed_clients, "WAIT_S", 0.05)
    here = Seen()
    async with relaying(Seen(), own=GrpcServing(here.service()).connect) as (pair, _):
        pair.leadership.set(ELSEWHERE)  # is reached, and composes its broker
        async with grpc_client(pair.port_of_b) as client:
            await client.closed.wait()
        pair.leadership.set(ELSEWHERE._replace(leader="c"))  # is not to be reached
        async with grpc_client(pair.port_of_b) as client:
            assert (await client.call(ECHO, b"said")).messages == [b"said"]
            pair.leadership.set(ELSEWHERE)
            await client.closed.wait()
        assert len(here.seen) == 1
        await until(lambda: pair.at_b.counted["closed_unserved"] == 1)


@pytest.mark.usefixtures("soon_answered")
async def test_who_was_answered_while_the_leader_was_not_reached_comes_again_once_that_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "LOOK_S", 0.05)
    served, here = Seen(), Seen()
    async with relaying(served, own=GrpcServing(here.service()).connect) as (pair, serve):
        await serve()
        pair.cable_s = 5.0  # longer than a dial may take
        pair.leadership.set(ELSEWHERE)
        async with grpc_client(pair.port_of_b) as client, grpc_client(pair.port_of_b) as other:
            for each in (client, other):
                assert (await each.call(ECHO, b"said")).messages == [b"said"]
            assert (len(served.seen), len(here.seen)) == (0, 2)
            dialed = len(pair.asked)
            await until(lambda: len(pair.asked) > dialed + 1)
            assert not client.closed.is_set()
            pair.cable_s = 0.0
            await client.closed.wait()
            await other.closed.wait()
        async with grpc_client(pair.port_of_b) as client:
            assert (await client.call(ECHO, b"again")).messages == [b"again"]
        assert (len(served.seen), len(here.seen)) == (1, 2)


@pytest.mark.usefixtures("soon_answered")
async def test_who_waits_behind_others_that_reach_the_leader_is_closed_and_not_answered_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "MOST_DIALING", 1)
    here = Seen()
    async with relaying(Seen(), own=GrpcServing(here.service()).connect) as (pair, serve):
        await serve()
        pair.cable_s = 0.3
        pair.leadership.set(ELSEWHERE)
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(grpc_client(pair.port_of_b)) for _ in range(5)]
            await until(lambda: pair.at_b.counted["closed_unserved"] > 0)
            assert (await clients[0].call(ECHO, b"said")).messages == [b"said"]
        assert not here.seen


async def test_a_client_is_served_here_while_a_box_of_an_older_version_leads() -> None:
    served, here = Seen(), Seen()
    own = GrpcServing(here.service()).connect
    async with relaying(served, own=own) as (pair, serve):
        await serve()
        pair.own.heard("a", False)
        pair.leadership.set(ELSEWHERE)
        async with grpc_client(pair.port_of_b) as client:
            assert (await client.call(ECHO, b"said")).messages == [b"said"]
            assert (len(served.seen), len(here.seen)) == (0, 1)
            pair.leadership.set(ELSEWHERE._replace(leader="c"))
            await client.closed.wait()


async def ask_for(tcp: trio.SocketStream, sizes: list[int]) -> None:
    """Ask for so many bytes each, and read nothing."""
    client = GrpcTestClient(tcp)
    client.h2.increment_flow_control_window(sum(sizes))
    for size in sizes:
        number = await client.begin(SIZE)
        client.h2.increment_flow_control_window(2 * size, number)
        await client.send(number, enveloped(str(size - 100).encode()), end=True)


async def test_a_client_that_does_not_read_is_not_read_for() -> None:
    asked = [4 * MIB] * 40
    async with relaying(Seen()) as (pair, serve):
        await serve()
        threads = threading.active_count()
        pair.leadership.set(ELSEWHERE)
        tcp = await trio.open_tcp_stream("127.0.0.1", pair.port_of_b)
        await ask_for(tcp, asked)
        await until(lambda: pair.at_a.unsent.bytes > MIB)
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert threading.active_count() <= threads, "none waits for a client"
        await trio.aclose_forcefully(tcp)
        await until(lambda: pair.at_a.statistics().connections == 0)
        taken = pair.at_a.counted["bytes_out"]
        assert taken < 20 * MIB, f"{taken} of {sum(asked)} bytes are in buffers of the kernel and of the follower"


async def test_a_relayed_client_has_its_place_at_the_leader_and_is_busy_while_it_waits_for_an_answer() -> None:
    seen = Seen()
    async with relaying(seen) as (pair, serve), grpc_client(pair.port_of_b) as client:
        await until(lambda: pair.relay._waiting == 1)
        [accepted] = pair.accepted
        assert not accepted.peer.elsewhere
        await serve()
        pair.leadership.set(ELSEWHERE)
        await client.call(ECHO, b"")  # what either has to settle at the beginning is over
        async with trio.open_nursery() as nursery:
            frames = pair.at_a.counted["frames"]
            nursery.start_soon(client.call, WAIT, b"")
            await until(lambda: pair.at_a.counted["frames"] > frames)
            await trio.testing.wait_all_tasks_blocked(2 * relay_module.QUIET_S)
            assert (accepted.peer.elsewhere, accepted.is_busy()) == (True, True)
            seen.waits.set()
        await until(lambda: not accepted.is_busy())


async def test_a_relayed_client_that_reads_nothing_more_is_closed_though_the_leader_has_gone() -> None:
    async with relaying(Seen(), limits=Limits(unsent_s=0.5)) as (pair, serve):
        await serve()
        pair.leadership.set(ELSEWHERE)
        tcp = await trio.open_tcp_stream("127.0.0.1", pair.port_of_b)
        await ask_for(tcp, [4 * MIB] * 40)
        await until(lambda: pair.at_a.unsent.bytes > MIB)
        pair.leave()
        await until(lambda: pair.at_b.counted["closed_unsent"] == 1)
        await trio.aclose_forcefully(tcp)


async def test_nobody_waits_for_a_client_that_says_nothing_or_has_gone() -> None:
    async with relaying(Seen(), limits=Limits(first_frame_s=0.3)) as (pair, serve):
        async with grpc_client(pair.port_of_b):
            await until(lambda: pair.relay._waiting == 1)
        await until(lambda: pair.at_b.counted["closed_eof"] == 1)
        assert pair.relay._waiting == 0
        silent = await trio.open_tcp_stream("127.0.0.1", pair.port_of_b)
        pair.leadership.set(ELSEWHERE)
        await serve()
        assert await silent.receive_some() == b""
        await until(lambda: pair.at_b.counted["closed_first"] == 1)
        gone = await trio.open_tcp_stream("127.0.0.1", pair.port_of_b)
        await gone.aclose()
        await until(lambda: pair.at_b.counted["closed_eof"] == 2)
        assert not pair.asked, "the leader has heard of none"


async def test_what_was_said_before_there_was_a_leader_arrives_whole() -> None:
    async with relaying(Seen()) as (pair, serve):
        await serve()
        async with grpc_client(pair.port_of_b) as client, trio.open_nursery() as nursery:
            said = [bytes([number]) * 30_000 for number in range(5)]  # more than is read ahead
            for each in said:
                nursery.start_soon(client.call, ECHO, each)
            await until(lambda: pair.accepted and pair.accepted[0]._stream.begun == RECEIVE_BYTES)  # type: ignore[attr-defined]
            pair.leadership.set(ELSEWHERE)
        assert sorted(message for call in client.calls.values() for message in call.messages) == said
