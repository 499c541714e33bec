"""TLS and plain text on one port, rotation, mutual authentication; certificates made by openssl."""

import gc
import logging
import shutil
import socket
import ssl
import struct
import subprocess
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from netstack.serving.channel import open_channel
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.peer import Peer
from netstack.serving.server import open_listeners
from netstack.serving.tls import (
    PORTION,
    ClientAuth,
    Portions,
    TlsConfig,
    TlsDoor,
    TlsMode,
    TlsUnusable,
    client_context,
    not_after_ms,
)
from netstack.testing import serving
from netstack.wire.command import RemotingCommand, request
from netstack.wire.conversation import Answer, Reply
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl: apt install openssl"),
]


def make_certificate(folder: Path, name: str, days: int = 30) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    key_options = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key))
    subject = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", str(days))
    command = ("openssl", "req", "-x509", *key_options, *subject, "-out", str(cert))
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def server_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("server"), "box")


@pytest.fixture(scope="module")
def client_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("client"), "client")


def over(command: RemotingCommand, peer: Peer) -> Answer:
    return Reply(command.reply(0, "tls" if peer.tls else "plain", None, command.body))


async def remark(port: int, tls: ssl.SSLContext | None) -> str | None:
    async with open_channel("127.0.0.1", port, tls=tls) as channel:
        answer = await channel.ask(request(34, None, bytes(200_000)))  # more than one TLS record each way
        assert answer.body == bytes(200_000)
        return answer.remark


async def first_answer_bytes(port: int, sent: bytes) -> bytes:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    await stream.send_all(sent)
    with trio.fail_after(25):
        try:
            return bytes(await stream.receive_some(100))
        except trio.BrokenResourceError:
            return b""


async def test_one_port_serves_tls_and_plain_text_when_permissive(server_files: tuple[Path, Path]) -> None:
    async with serving(over, tls=TlsDoor(TlsConfig(*server_files))) as port:
        assert await remark(port, client_context()) == "tls"
        assert await remark(port, client_context(trust=server_files[0])) == "tls"
        assert await remark(port, None) == "plain"


async def test_enforcing_closes_plain_text_and_disabled_closes_tls(server_files: tuple[Path, Path]) -> None:
    async with serving(over, tls=TlsDoor(TlsConfig(*server_files, mode=TlsMode.ENFORCING))) as port:
        assert await first_answer_bytes(port, bytes.fromhex("00000006000000027b7d")) == b""
        assert await remark(port, client_context()) == "tls"
    async with serving(over, tls=TlsDoor(TlsConfig(*server_files, mode=TlsMode.DISABLED))) as port:
        assert await first_answer_bytes(port, bytes.fromhex("1603010005")) == b""
        assert await remark(port, None) == "plain"


async def test_a_greeting_without_an_end_is_closed_and_others_go_on(
    server_files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(over, tls=TlsDoor(TlsConfig(*server_files, handshake_s=0.5))) as port:
        assert await first_answer_bytes(port, bytes.fromhex("160301")) == b""
        assert await remark(port, client_context()) == "tls"
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=tls_refused"]


def greet(port: int, context: ssl.SSLContext) -> None:
    """Begin a handshake, look at the answer and go without a word, as gRPC's own clients do."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    with socket.create_connection(("127.0.0.1", port), 20) as line:
        line.sendall(outgoing.read())
        line.recv(100_000)


def shake_hands(port: int, context: ssl.SSLContext) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as line, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(line)


@pytest.mark.parametrize(
    ("connect", "told"),
    [
        (shake_hands, "the peer does not accept this box's certificate: unknown ca"),
        (greet, "the peer ended the TLS handshake: perhaps it does not accept this box's certificate"),
    ],
)
async def test_the_log_says_that_a_client_does_not_accept_the_certificate(
    connect: Callable[[int, ssl.SSLContext], None],
    told: str,
    server_files: tuple[Path, Path],
    client_files: tuple[Path, Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = client_context(trust=client_files[0])
    context.check_hostname = False
    async with serving(over, tls=TlsDoor(TlsConfig(*server_files))) as port:
        await trio.to_thread.run_sync(connect, port, context)
        await until(lambda: caplog.records)
    assert told in caplog.records[0].getMessage()


async def test_who_greets_and_resets_the_connection_harms_nobody_else(server_files: tuple[Path, Path]) -> None:
    (listener,) = await open_listeners("127.0.0.1", 0)
    async with listener:
        client = await trio.open_tcp_stream(*listener.socket.getsockname())
        server = await listener.accept()
        await client.send_all(bytes.fromhex("160301"))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await client.aclose()
        with pytest.raises(OSError, match="not connected"):
            server.socket.getpeername()
        with pytest.raises(trio.BrokenResourceError):
            await TlsDoor(TlsConfig(*server_files, trusting_self=True)).secure(server)
        await trio.aclose_forcefully(server)


async def test_nothing_of_an_ended_connection_waits_for_the_collector(server_files: tuple[Path, Path]) -> None:
    streams: list[weakref.ref[trio.SocketStream]] = []

    class Door(TlsDoor):
        async def secure(self, stream: trio.SocketStream) -> trio.abc.Stream:
            streams.append(weakref.ref(stream))
            return await super().secure(stream)

    gc.collect()
    gc.disable()
    try:
        async with serving(over, tls=Door(TlsConfig(*server_files, handshake_s=0.5))) as port:
            assert await remark(port, client_context()) == "tls"
            assert await remark(port, None) == "plain"
            assert await first_answer_bytes(port, bytes.fromhex("160301")) == b""  # never ends
            await first_answer_bytes(port, bytes.fromhex("1603010002ffff"))  # is none
        assert [stream() for stream in streams] == [None] * 4
    finally:
        gc.enable()


async def test_who_says_nothing_is_neither_upgraded_nor_kept_nor_called_a_refused_handshake(
    server_files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    governor = Governor(Limits(idle_s=0.2))
    async with serving(over, tls=TlsDoor(TlsConfig(*server_files)), governor=governor) as port:
        assert await first_answer_bytes(port, b"") == b""
        assert await remark(port, None) == "plain"
    counted = governor.statistics().counted
    assert (counted["closed_idle"], counted.get("closed_tls")) == (1, None)
    assert not caplog.records  # as Java 5.0 to 5.2 does with each NameServer but one


async def test_replaced_files_count_for_the_next_connection_and_bad_ones_do_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = make_certificate(tmp_path, "first")
    door = TlsDoor(TlsConfig(cert, key))
    old = client_context(trust=cert)
    assert not await door.check()
    new_cert, new_key = make_certificate(tmp_path, "second", days=400)
    new_key.replace(key)
    new_cert.replace(cert)
    new = client_context(trust=cert)
    async with serving(over, tls=door) as port:
        assert await remark(port, old) == "tls"
        assert await door.check()
        assert await remark(port, new) == "tls"
        with pytest.raises(ConnectionError, match=r"TLS handshake with 127\.0\.0\.1:\d+ failed: .*verify failed"):
            await remark(port, old)
        key.write_text("broken")
        with caplog.at_level(logging.ERROR):
            assert not await door.check()
            assert not await door.check()
        assert await remark(port, new) == "tls"
    assert (door.statistics().reloads, len([r for r in caplog.records if "tls_files_unusable" in r.msg])) == (1, 1)
    assert str(key) in door.statistics().failure


def encrypted(key: Path, word: Path, out: Path) -> None:
    command = ("openssl", "pkcs8", "-topk8", "-v2", "aes256", "-in", str(key), "-passout", f"file:{word}")
    subprocess.run([*command, "-out", str(out)], check=True, capture_output=True)


async def test_an_encrypted_key_takes_the_password_of_its_file(tmp_path: Path, server_files: tuple[Path, Path]) -> None:
    cert, key, word = server_files[0], tmp_path / "locked.key", tmp_path / "password"
    word.write_text("open, sesame\n")
    encrypted(server_files[1], word, key)
    assert "BEGIN ENCRYPTED PRIVATE KEY" in key.read_text()
    door = TlsDoor(TlsConfig(cert, key, key_password=word))
    async with serving(over, tls=door) as port:
        assert await remark(port, client_context(trust=cert)) == "tls"
        word.write_text("wrong")
        assert not await door.check()
        assert str(key) in door.statistics().failure
        assert await remark(port, client_context(trust=cert)) == "tls"  # the one before is in force
    for without in (None, word):
        with pytest.raises(TlsUnusable, match=r"locked\.key"):
            TlsDoor(TlsConfig(cert, key, key_password=without))


async def test_mutual_authentication_refuses_who_has_no_certificate(
    server_files: tuple[Path, Path], client_files: tuple[Path, Path]
) -> None:
    config = TlsConfig(*server_files, mode=TlsMode.ENFORCING, client_auth=ClientAuth.REQUIRE, trust=client_files[0])
    async with serving(over, tls=TlsDoor(config)) as port:
        assert await remark(port, client_context(cert=client_files[0], key=client_files[1])) == "tls"
        with pytest.raises(Exception):  # noqa: B017, PT011  # TLS 1.3 tells at the first read, 1.2 in the handshake
            await remark(port, client_context())


def test_the_end_of_a_certificate_is_read_from_it(tmp_path: Path) -> None:
    for days in (10, 40 * 365):  # UTCTime, and GeneralizedTime from 2050 on
        cert, _ = make_certificate(tmp_path, f"days{days}", days)
        assert abs(not_after_ms(cert.read_text()) / 1000 - time.time() - days * 86400) < 120


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"]
)
def test_unusable_files_are_refused_by_name(tmp_path: Path, text: str) -> None:
    cert = tmp_path / "cert.pem"
    with pytest.raises(TlsUnusable, match=r"cert\.pem: No such file"):
        TlsDoor(TlsConfig(cert, cert))
    cert.write_text(text)
    with pytest.raises(TlsUnusable, match=r"cert\.pem"):
        TlsDoor(TlsConfig(cert, cert))


def test_client_certificates_without_a_ca_are_refused(server_files: tuple[Path, Path]) -> None:
    with pytest.raises(TlsUnusable, match=r"tls\.trust names no CA file"):
        TlsDoor(TlsConfig(*server_files, client_auth=ClientAuth.REQUIRE))


@pytest.mark.parametrize(
    ("ciphers", "agreed"), [("ECDHE+AESGCM", True), ("ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA", False)]
)
async def test_tls_1_2_agrees_on_authenticated_ciphers_alone(
    server_files: tuple[Path, Path], ciphers: str, agreed: bool
) -> None:
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)
    async with serving(over, tls=TlsDoor(TlsConfig(*server_files, TlsMode.PERMISSIVE))) as port:
        if agreed:
            assert await remark(port, context) == "tls"
        else:
            with pytest.raises(ConnectionError, match="handshake"):
                await remark(port, context)


async def test_openssl_is_given_little_at_a_time_whatever_it_asks_for() -> None:
    client, server = trio.testing.memory_stream_pair()
    await client.send_all(bytes(100_000))
    portions = Portions(server)
    assert [len(await portions.receive_some(most)) for most in (None, 100, 65_536)] == [PORTION, 100, PORTION]
