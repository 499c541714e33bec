"""Mutual TLS 1.3: who is let in, who is turned away, and what the box is told."""

from __future__ import annotations

import itertools
import random
import shutil
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from storage_driver.log.clock import wall_ms
from uplink_spark.box.link.connect import ConnectFailed, GatewayRefused, greet, open_stream
from uplink_spark.centre.certs import make_box, make_ca, make_gateway
from uplink_spark.centre.gateway import run_gateway
from uplink_spark.config import GatewayConfig, UplinkConfig
from uplink_spark.errors import ConfigError
from uplink_spark.wire.expiry import serial_and_end
from uplink_spark.wire.frames import Hello
from uplink_spark.wire.identity import ALPN
from uplink_spark.wire.tls import TlsStream, box_context, gateway_context

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl"),
]
NOW = 1_700_000_000_000


def hello(box: str = "box-17") -> Hello:
    return Hello(box, ((5, 0),), ((7, 0),), 0, 97, NOW, 1, "test")


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    make_ca(folder)
    make_gateway(folder, "localhost")
    make_box(folder, "box-17")
    return folder


def copy(certs: Path, target: Path) -> Path:
    return Path(shutil.copytree(certs, target))


async def serve(nursery: trio.Nursery, certs: Path, root: Path, **settings: object) -> int:
    config = GatewayConfig(str(root), ("127.0.0.1", 0), certs=certs, linger_ms=10, **settings)  # type: ignore[arg-type]
    _, port = await nursery.start(lambda task_status: run_gateway(config, now_ms=wall_ms, task_status=task_status))
    return int(port)


async def meet(port: int, certs: Path | None, said: Hello, *, clock_ok: bool = True, host: str = "localhost") -> None:
    config = UplinkConfig(f"{host}:{port}", said.box, certs=certs)
    async with open_stream(config, config.gateway, clock_ok=clock_ok) as (stream, _):
        await greet(stream, said, None, certs=certs)


async def meeting(
    gateway_certs: Path,
    box_certs: Path | None,
    root: Path,
    said: Hello | None = None,
    *,
    clock_ok: bool = True,
    host: str = "localhost",
    **settings: object,
) -> None:
    async with trio.open_nursery() as nursery:
        port = await serve(nursery, gateway_certs, root, **settings)
        try:
            await meet(port, box_certs, said or hello(), clock_ok=clock_ok, host=host)
        finally:
            nursery.cancel_scope.cancel()


def leaf(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


async def refusal(*arguments: object, **settings: object) -> ConnectFailed | GatewayRefused:
    try:
        await meeting(*arguments, **settings)  # type: ignore[arg-type]
    except (ExceptionGroup, ConnectFailed, GatewayRefused) as error:
        found = leaf(error)
        assert isinstance(found, ConnectFailed | GatewayRefused), repr(found)
        return found
    raise AssertionError("the box was let in")


async def test_a_box_with_its_certificate_is_welcome(certs: Path, tmp_path: Path) -> None:
    await meeting(certs, certs, tmp_path)


async def test_the_certificate_names_the_box_not_the_frame(certs: Path, tmp_path: Path) -> None:
    found = await refusal(certs, certs, tmp_path, hello("box-18"))
    assert isinstance(found, GatewayRefused)
    assert found.fault.code == "identity"


async def test_a_box_of_another_ca_learns_where_to_look(certs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_ca(other)
    make_box(other, "box-17")
    shutil.copy(certs / "ca.crt", other / "ca.crt")
    found = await refusal(certs, other, tmp_path / "landing")
    serial = serial_and_end((other / "box.crt").read_text())[0]
    assert f"gateway closed before WELCOME: certificate not accepted? it is serial {serial} and expires 20" in str(
        found
    )


async def test_a_gateway_of_another_ca_is_refused_with_what_to_copy(certs: Path, tmp_path: Path) -> None:
    other = copy(certs, tmp_path / "other")
    (other / "ca.crt").unlink()
    make_ca(tmp_path / "another")
    shutil.copy(tmp_path / "another/ca.crt", other / "ca.crt")
    found = await refusal(certs, other, tmp_path / "landing")
    assert "copy the centre's ca.crt" in str(found)


async def test_a_certificate_without_box_name_is_refused(certs: Path, tmp_path: Path) -> None:
    mine = copy(certs, tmp_path / "mine")
    for ending in ("crt", "key"):
        shutil.copy(certs / f"gateway.{ending}", mine / f"box.{ending}")
    assert isinstance(await refusal(certs, mine, tmp_path / "landing"), ConnectFailed)


async def test_an_expired_box_certificate_is_refused(certs: Path, tmp_path: Path) -> None:
    mine = copy(certs, tmp_path / "mine")
    make_box(mine, "box-17", days=-1)
    found = await refusal(certs, mine, tmp_path / "landing")
    ended = datetime.fromtimestamp(serial_and_end((mine / "box.crt").read_text())[1], UTC)
    assert ended < datetime.now(UTC)
    assert f"expires {ended:%Y-%m-%d %H:%M} UTC; see the gateway's log" in str(found)


async def test_an_expired_gateway_is_refused_but_not_by_a_box_without_a_clock(certs: Path, tmp_path: Path) -> None:
    theirs = copy(certs, tmp_path / "theirs")
    make_gateway(theirs, "localhost", days=-1)
    found = await refusal(theirs, certs, tmp_path / "landing")
    assert "expired" in str(found)
    assert "renew it at the centre, or is this box's clock wrong?" in str(found)
    await meeting(theirs, certs, tmp_path / "landing", clock_ok=False)


async def test_a_gateway_under_another_name_is_refused(certs: Path, tmp_path: Path) -> None:
    found = await refusal(certs, certs, tmp_path, host="127.0.0.1")
    assert "TLS handshake failed" in str(found)
    assert "uplink.gateway must be an address in its certificate" in str(found)


@pytest.mark.parametrize("line", ["box-17", "serial"])
async def test_the_deny_list_is_read_at_each_handshake(certs: Path, tmp_path: Path, line: str) -> None:
    if line == "serial":
        decoded = ssl._ssl._test_decode_cert(str(certs / "box.crt"))  # type: ignore[attr-defined]
        line = decoded["serialNumber"].lower()
    deny = tmp_path / "deny"
    deny.write_text("nobody\n")
    await meeting(certs, certs, tmp_path / "landing", deny=deny)
    deny.write_text(f"nobody\n{line}\n")
    assert isinstance(await refusal(certs, certs, tmp_path / "landing", deny=deny), ConnectFailed)


def client_context(certs: Path, alpn: list[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(certs / "box.crt", certs / "box.key")
    context.load_verify_locations(certs / "ca.crt")
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


async def ended(stream: trio.SSLStream[trio.SocketStream]) -> bool:
    """Whether the gateway ends the connection instead of answering HELLO."""
    try:
        await stream.do_handshake()
        await stream.send_all(hello().encode())
        return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True


@pytest.mark.parametrize("how", ["no ALPN", "other ALPN", "TLS 1.2", "no certificate", "plain", "silence"])
async def test_what_is_no_uplink_is_closed(certs: Path, tmp_path: Path, how: str) -> None:
    async with trio.open_nursery() as nursery:
        port = await serve(nursery, certs, tmp_path)
        tcp = await trio.open_tcp_stream("localhost", port)
        context = client_context(certs, [] if how == "no ALPN" else ["h2"] if how == "other ALPN" else [ALPN])
        if how == "TLS 1.2":
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        if how == "no certificate":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(certs / "ca.crt")
            context.set_alpn_protocols([ALPN])
        with trio.fail_after(25):
            if how == "plain":
                await tcp.send_all(hello().encode())
                assert await tcp.receive_some() != hello().encode()
            elif how == "silence":
                assert await tcp.receive_some() == b""
            else:
                stream = trio.SSLStream(tcp, context, server_hostname="localhost", https_compatible=True)
                assert await ended(stream)
        nursery.cancel_scope.cancel()


async def test_certificate_files_that_change_are_read_again(certs: Path, tmp_path: Path) -> None:
    theirs = copy(certs, tmp_path / "theirs")
    async with trio.open_nursery() as nursery:
        port = await serve(nursery, theirs, tmp_path / "landing")
        await meet(port, certs, hello())
        fresh = tmp_path / "fresh"
        make_ca(fresh)
        make_gateway(fresh, "localhost")
        make_box(fresh, "box-17")
        for name in ("ca.crt", "gateway.crt", "gateway.key"):
            shutil.copy(fresh / name, theirs / name)
        await meet(port, fresh, hello())
        nursery.cancel_scope.cancel()


def test_missing_certificates_are_a_start_error_that_names_them(tmp_path: Path) -> None:
    config = GatewayConfig(str(tmp_path), ("127.0.0.1", 0), certs=tmp_path)
    with pytest.raises(ConfigError, match=r"gateway\.crt"):
        trio.run(lambda: run_gateway(config, now_ms=lambda: NOW))


def test_without_certificates_only_loopback_is_allowed(tmp_path: Path) -> None:
    config = GatewayConfig(str(tmp_path), ("0.0.0.0", 0))
    with pytest.raises(ConfigError, match="only loopback is allowed"):
        trio.run(lambda: run_gateway(config, now_ms=lambda: NOW))


def test_the_alpn_line_is_the_major_version() -> None:
    assert ALPN == "rocketbox-uplink/1"


async def take(stream: TlsStream | trio.SSLStream[trio.SocketStream], length: int) -> bytes:
    """Receive that many bytes, fewer when the stream ends before."""
    got, asked = bytearray(), itertools.cycle((None, 1, 100_000))
    while len(got) < length and (part := await stream.receive_some(next(asked))):
        got += part
    return bytes(got)


@pytest.mark.parametrize("farewell", [True, False])
async def test_bytes_of_any_length_come_through_both_ways_and_the_end_is_an_end(certs: Path, farewell: bool) -> None:
    dice = random.Random(11)
    there, back = ([dice.randbytes(dice.choice((1, 40, 16_384, 16_385, 300_000))) for _ in range(12)] for _ in "ab")
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]

    async def box() -> None:
        tcp = await trio.open_tcp_stream("127.0.0.1", port)
        context = box_context(certs, clock_ok=True)
        stream = trio.SSLStream(tcp, context, server_hostname="localhost", https_compatible=not farewell)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, stream, there)
            assert await take(stream, sum(map(len, back))) == b"".join(back)
        await (stream if farewell else tcp).aclose()

    async def send(stream: TlsStream | trio.SSLStream[trio.SocketStream], parts: list[bytes]) -> None:
        for part in parts:
            await stream.send_all(part)

    with trio.fail_after(120):
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(box)
            served = TlsStream(await listener.accept(), gateway_context(certs))
            async with trio.open_nursery() as both:
                await served.do_handshake()
                both.start_soon(send, served, back)
                assert await take(served, sum(map(len, there))) == b"".join(there)
            assert [await served.receive_some(), await served.receive_some()] == [b"", b""]
            await served.aclose()


@pytest.mark.parametrize("host", ["gateway..example", "g" * 64])
async def test_a_name_that_is_none_fails_as_one_that_nobody_knows(host: str, certs: Path) -> None:
    config = UplinkConfig(f"{host}:10940", "box-17", certs=certs)
    with pytest.raises(ConnectFailed, match="it is not a host name") as raised:
        async with open_stream(config, config.gateway, clock_ok=True):
            pytest.fail("connected")
    assert raised.value.cause == "dns"
