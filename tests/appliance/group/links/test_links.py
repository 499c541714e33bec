"""Links over real sockets: who is let in, one link to each, and what strangers can do."""

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from appliance.group.links import links as links_module
from appliance.group.links.frames import HELLO, LinkFrame, LinkFrameDecoder, LinkRefused, MemberHello, encode_frame
from appliance.group.links.link import Link, LinkClocks, LinkPace
from appliance.group.links.link_port import LinkPort
from appliance.group.links.link_stream import LinkTlsStream
from appliance.group.links.link_tls import LinkTls
from appliance.group.links.links import LinkPeer, MemberLinks
from appliance.group.relay.relayed_clients import RelayedClients
from netstack.serving import socket_options
from netstack.serving.server import open_listeners
from storage_driver.log.clock import wall_ms
from tests.appliance.group.certificates import certificates, needs_openssl
from tests.waiting import until
from uplink_spark.centre.certs import make_member
from uplink_spark.wire.tls import TlsStream

pytestmark = [pytest.mark.slow, needs_openssl]
PACE = LinkPace(ping_s=0.2, silence_s=2.0, handshake_s=2.0)
MESSAGE, BYTES = 0x12, 0x18


def new_decoder() -> LinkFrameDecoder:
    return LinkFrameDecoder(most_record_bytes=1 << 20, with_bytes=frozenset({BYTES}))


class Member:
    """What sits behind the links of one member in these tests."""

    def __init__(self, name: str, group: str = "press", *, certificate: str | None = None) -> None:
        self.greeting = MemberHello(group, name, os.urandom(8), 1 << 20, ((1, 0),), ((2, 0),), (), 0, 0)
        self.taken: list[tuple[str, int]] = []
        self.events: list[str] = []
        self.refusal: LinkRefused | None = None
        site = certificates("other", ("a",)) if group == "other" else certificates()
        self.tls = LinkTls(site / (certificate or name), clock_ok=True)
        clocks = LinkClocks(trio.current_time, wall_ms)
        self.links = MemberLinks(self.tls, self, new_decoder=new_decoder, clocks=clocks, pace=PACE)
        self.port = LinkPort(self.links)
        self.number = 0
        self.relayed: RelayedClients | None = None

    def hello(self) -> MemberHello:
        return self.greeting

    def check(self, hello: MemberHello) -> LinkRefused | None:
        return self.refusal

    def begun(self, link: Link, hello: MemberHello) -> None:
        self.events.append(f"+{hello.member}")

    def ended(self, link: Link) -> None:
        self.events.append(f"-{link.member}")

    async def take(self, link: Link, frame: LinkFrame) -> None:
        self.taken.append((link.member, frame.kind))

    async def send_segment(self, member: str, stream: TlsStream, frame: LinkFrame) -> None:
        self.taken.append((member, frame.kind))
        await stream.send_all(b"pieces")

    async def take_client(self, member: str, stream: LinkTlsStream, frame: LinkFrame) -> None:
        self.taken.append((f"a client of {member}", frame.kind))
        if self.relayed is not None:
            await self.relayed.take(member, stream, frame)

    def linked(self) -> tuple[str, ...]:
        return self.links.statistics().linked

    def refused(self) -> dict[str, int]:
        return {reason: count for reason, count in self.links.statistics().refused.items() if count}


@asynccontextmanager
async def serving(*members: Member, dial: bool = True) -> AsyncIterator[trio.Nursery]:
    """Serve members, who know each other; later ones dial earlier ones."""
    async with trio.open_nursery() as nursery:
        for member in members:
            listeners = await open_listeners("127.0.0.1", 0)
            member.number = listeners[0].socket.getsockname()[1]
            nursery.start_soon(member.port.serve, listeners)
        for at, member in enumerate(members):
            others = [(other, at > number) for number, other in enumerate(members) if other is not member]
            member.links.set_peers(
                {each.greeting.member: LinkPeer("127.0.0.1", each.number, dial and dialed) for each, dialed in others}
            )
            nursery.start_soon(member.links.run)
        yield nursery
        nursery.cancel_scope.cancel()


async def dialed(member: Member, tls: LinkTls) -> TlsStream:
    """Return a connection to a member after the handshake."""
    tcp = await trio.open_tcp_stream("127.0.0.1", member.number)
    stream = TlsStream(tcp, tls.dialing, server_side=False)
    await stream.do_handshake()
    return stream


async def said_to(member: Member, by: Member) -> bytes:
    """Return what a member answers to a greeting."""
    stream = await dialed(member, by.tls)
    await stream.send_all(by.greeting.encode(HELLO))
    return await stream.receive_some()


async def test_each_has_one_link_to_each_and_messages_arrive() -> None:
    a, b, c = Member("a"), Member("b"), Member("c")
    async with serving(a, b, c):
        await until(lambda: all(len(member.linked()) == 2 for member in (a, b, c)))
        a.links.send("b", encode_frame(MESSAGE, {"n": 1}))
        c.links.send("b", encode_frame(MESSAGE, {"n": 2}))
        await until(lambda: len(b.taken) == 2)
        assert set(b.taken) == {("a", MESSAGE), ("c", MESSAGE)}
        assert sorted(a.events) == ["+b", "+c"]


async def test_a_member_that_has_vanished_is_noticed_on_either_side_of_each_connection() -> None:
    a, b = Member("a"), Member("b")
    async with serving(a, b):
        await until(lambda: a.linked() and b.linked())
        links = [a.links.link("b"), b.links.link("a")]
        streams = [link._stream for link in links if link is not None]
        async with b.links.connected("a") as beside:
            for stream in (*streams, beside):
                assert isinstance(stream, LinkTlsStream)
                option = stream._tcp.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                assert option == socket_options.TIMES["TCP_USER_TIMEOUT"]


async def test_a_link_that_breaks_is_made_again_and_both_sides_hear_of_it() -> None:
    a, b = Member("a"), Member("b")
    async with serving(a, b):
        await until(lambda: a.linked() and b.linked())
        a.links.send("b", b"\xff" * 64)  # no frame
        await until(lambda: b.refused().get("garbage"))
        await until(lambda: a.linked() and b.linked() and len(a.events) == 3)
        assert (a.events, b.events) == (["+b", "-b", "+b"], ["+a", "-a", "+a"])
        a.links.set_peers({})
        await until(lambda: not a.linked())
        await until(lambda: "is not a member" in b.links.statistics().last.get("a", ""))


async def test_a_log_that_does_not_fit_is_refused_with_the_reason_on_both_sides() -> None:
    a, b = Member("a"), Member("b")
    a.refusal = LinkRefused("differs", "segments of another size", 200)
    async with serving(a, b):
        await until(lambda: "segments of another size" in b.links.statistics().last.get("a", ""))
        await until(a.refused)
        assert not a.events
        assert a.refused() == {"differs": a.refused()["differs"]}
        a.refusal = None
        await until(lambda: a.linked() and b.linked())


async def test_strangers_get_no_link_and_are_counted() -> None:
    a, b, other = Member("a"), Member("b"), Member("a", "other")
    async with serving(a, b, dial=False):
        with pytest.raises(trio.BrokenResourceError):  # at the handshake, or at the first thing said
            await said_to(b, other)
        await until(lambda: b.refused().get("certificate"))
        impostor = Member("b", certificate="a")  # says b, its certificate says a
        assert await said_to(b, impostor) == b""
        await until(lambda: b.refused().get("garbage"))
        b.links.set_peers({})
        assert b"is not a member of press here" in await said_to(b, a)
        await until(lambda: b.refused().get("stranger") == 1)
        assert not b.events


async def test_a_second_process_of_one_name_is_refused_while_the_first_lives() -> None:
    a, b, twin = Member("a"), Member("b"), Member("b")
    async with serving(a, b):
        await until(lambda: a.linked())
        assert b"another process is linked as b" in await said_to(a, twin)
        await until(lambda: a.refused() == {"twin": 1})
        assert a.events == ["+b"]
        again = await dialed(a, b.tls)  # the same process: its former link is dead for it
        await again.send_all(b.greeting.encode(HELLO))
        await until(lambda: a.events[:3] == ["+b", "-b", "+b"])


@pytest.mark.parametrize(
    "said",
    [
        lambda member: encode_frame(MESSAGE, {"n": 1}),
        lambda member: member.greeting.encode(HELLO).replace(b"first", b"frist"),
        lambda member: member.greeting.encode(HELLO) * 2,
        lambda member: b"\xff" * 100,
        lambda member: b"",
    ],
)
async def test_a_member_that_does_not_greet_properly_has_no_link(said: Callable[[Member], bytes]) -> None:
    a, b = Member("a"), Member("b")
    async with serving(a, b, dial=False):
        stream = await dialed(a, b.tls)
        await stream.send_all(said(b))
        assert await stream.receive_some() == b""
        assert not a.events
        await until(lambda: sum(a.refused().values()) == 1)


async def test_floods_of_every_kind_are_closed_and_counted_and_members_are_linked_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links_module, "MOST_GREETING", 4)
    a, b = Member("a"), Member("b")
    async with serving(a, b, dial=False) as nursery:
        silent = [await trio.open_tcp_stream("127.0.0.1", a.number) for _ in range(40)]
        await until(lambda: a.port.refused()["undecided"] == 8)
        for each in silent:
            await each.aclose()
        for first in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 8, b"\xff" * 1000):
            stream = await trio.open_tcp_stream("127.0.0.1", a.number)
            await stream.send_all(first)
            with trio.fail_after(5):
                try:
                    assert await stream.receive_some() == b""
                except trio.BrokenResourceError:
                    pass  # closed with bytes unread
        await until(lambda: a.port.refused()["unknown"] == 3)
        greeting = [await trio.open_tcp_stream("127.0.0.1", a.number) for _ in range(12)]
        for each in greeting:
            await each.send_all(b"\x16\x03\x01")
        await until(lambda: a.refused().get("places") == 8)
        await until(lambda: a.refused().get("greeting") == 4, 10)
        b.links.set_peers({"a": LinkPeer("127.0.0.1", a.number, dialed=True)})
        await until(lambda: a.linked() == ("b",))
        assert nursery.child_tasks


async def test_strangers_who_hang_in_their_greeting_keep_no_member_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "MOST_GREETING", 4)
    a, b = Member("a"), Member("b")
    async with serving(a, b, dial=False):
        greeting = [await trio.open_tcp_stream("127.0.0.1", a.number) for _ in range(4)]
        for each in greeting:
            await each.send_all(b"\x16\x03\x01")
            await trio.testing.wait_all_tasks_blocked(0.02)
        b.links.set_peers({"a": LinkPeer("127.0.0.1", a.number, dialed=True)})
        await until(lambda: a.linked() == ("b",))
        assert (a.refused().get("places"), a.refused().get("greeting", 0)) == (1, 0)
        for each in greeting:
            await each.aclose()


async def stays_linked(a: Member, b: Member) -> None:
    """Fail once either of two has no link to the other."""
    while True:
        await trio.lowlevel.checkpoint()
        assert (a.linked(), b.linked()) == (("b",), ("a",))


@pytest.mark.parametrize("b_is_dialed", [False, True])
async def test_new_certificates_are_shown_to_everybody_without_a_moment_without_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, b_is_dialed: bool
) -> None:
    monkeypatch.setattr(links_module, "LOOK_S", 0.05)
    monkeypatch.setattr(links_module, "APART_S", 0.4)
    a, b = Member("a"), Member("b")
    files = {name: (certificates() / "b" / name).read_bytes() for name in ("box.crt", "box.key", "ca.crt")}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    b.tls = b.links._tls = LinkTls(tmp_path, clock_ok=True)
    async with serving(*((b, a) if b_is_dialed else (a, b))) as nursery:
        await until(lambda: (a.linked(), b.linked()) == (("b",), ("a",)))
        first_ms = a.links.certificates().ends_ms["b"]
        assert b.links.certificates().own_ends_ms == first_ms
        nursery.start_soon(stays_linked, a, b)
        make_member(tmp_path, "press", "b", days=2, ca=certificates())
        await until(lambda: a.links.certificates().ends_ms["b"] < first_ms - 86_400_000)
        await trio.sleep(0.5)
        assert a.events == ["+b", "-b", "+b"]
        assert b.events == ["+a", "-a", "+a"]
        assert (a.refused(), b.refused(), b.links.statistics().last) == ({}, {}, {})
        (tmp_path / "box.crt").write_bytes(files["box.crt"])
        (tmp_path / "box.key").write_bytes((certificates() / "a" / "box.key").read_bytes())
        await until(lambda: "key values mismatch" in b.links.certificates().failure)
        assert b.linked() == ("a",), "the previous ones stay in use"


async def test_a_link_stays_where_the_new_certificates_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "LOOK_S", 0.05)
    monkeypatch.setattr(links_module, "APART_S", 0.05)
    a, b = Member("a"), Member("b")
    for name in ("box.crt", "box.key", "ca.crt"):
        (tmp_path / name).write_bytes((certificates() / "b" / name).read_bytes())
    b.tls = b.links._tls = LinkTls(tmp_path, clock_ok=True)
    async with serving(a, b):
        await until(lambda: (a.linked(), b.linked()) == (("b",), ("a",)))
        for name in ("box.crt", "box.key"):
            (tmp_path / name).write_bytes((certificates("other", ("a",)) / "a" / name).read_bytes())
        await until(lambda: a.refused().get("certificate", 0) > 1)
        assert (a.events, b.events) == (["+b"], ["+a"])


async def test_who_does_not_answer_is_told_in_words() -> None:
    silent, b = await open_listeners("127.0.0.1", 0), Member("b")
    b.links.set_peers({"a": LinkPeer("127.0.0.1", silent[0].socket.getsockname()[1], dialed=True)})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.links.run)
        await until(lambda: b.links.statistics().last)
        nursery.cancel_scope.cancel()
    assert b.links.statistics().last == {"a": "no answer in time: look at the network between the two"}
    for each in silent:
        await each.aclose()
