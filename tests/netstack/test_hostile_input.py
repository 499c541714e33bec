"""Bad input over real sockets: the connection closes, the others go on, memory stays, one line is logged."""

import random
import resource

import pytest
import trio
import trio.testing

from netstack.serving.channel import open_channel
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.testing import serving
from netstack.wire.command import RemotingCommand, encode_command, request
from tests.waiting import until, until_it

GARBAGE = {
    "garbage": b"SSH-2.0-client\r\n",
    "length of 2 GiB": bytes.fromhex("7fffffff00000002") + b"{}",
    "length below zero": bytes.fromhex("ffffffff"),
    "length of three": bytes.fromhex("0000000300"),
    "wrong header type": bytes.fromhex("0000000602000002") + b"{}",
    "header longer than its frame": bytes.fromhex("0000000600000005") + b"{}",
    "giant header": bytes.fromhex("00ffff0000fffe00"),
    "header of nothing": bytes.fromhex("0000000400000000"),
    "header that is no JSON": bytes.fromhex("0000000600000002") + b"{{",
    "deep header": b"\x00\x00\x13\x8c\x00\x00\x13\x88" + b"[" * 5000,
    "binary header cut short": bytes.fromhex("0000000601000002") + b"xx",
    "TLS greeting": bytes.fromhex("16030100f8010000f40303"),
}


async def read_to_end(stream: trio.SocketStream, within_s: float = 60) -> bytes:
    received = b""
    with trio.fail_after(within_s):
        try:
            while part := await stream.receive_some(65536):
                received += part
        except trio.BrokenResourceError:
            pass  # closed with our bytes unread: a reset, which is an end as well
    return received


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE.keys())
async def test_a_broken_frame_closes_its_connection_without_an_answer(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    governor = Governor()
    async with serving(governor=governor) as port, open_channel("127.0.0.1", port) as other:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(sent)
        assert await read_to_end(stream) == b""
        assert (await other.ask(request(34, {"still": "there"}))).ext == {"still": "there"}
        assert governor.statistics().connections == 1
    assert governor.statistics().counted["closed_protocol"] == 1
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" port=")[0] for line in lines] == ["event=protocol_error peer=127.0.0.1"]


async def test_a_valid_frame_before_the_garbage_is_served() -> None:
    async with serving() as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(encode_command(request(34)))
        assert b'"code":0' in await stream.receive_some(1000)
        await stream.send_all(GARBAGE["garbage"])
        assert await read_to_end(stream) == b""


@pytest.mark.slow
async def test_two_thousand_broken_connections_leave_one_line_no_memory_and_no_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    governor, began_s = Governor(), trio.current_time()
    attacks = list(GARBAGE.values())

    async def attack(port: int, number: int) -> None:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(attacks[number % len(attacks)])
            await read_to_end(stream)

    async def wave(port: int) -> None:
        for first in range(0, 1000, 50):
            async with trio.open_nursery() as nursery:
                for number in range(first, first + 50):
                    nursery.start_soon(attack, port, number)

    async with serving(governor=governor) as port:
        await wave(port)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await wave(port)
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert governor.statistics().connections == 0
    assert grown_kib < 4096
    assert governor.statistics().counted["closed_protocol"] == 2000
    assert 1 <= len(caplog.records) <= 1 + (trio.current_time() - began_s) / 10  # one per address and ten seconds


@pytest.mark.slow
async def test_half_frames_hold_a_bounded_amount_and_age_out() -> None:
    governor = Governor(Limits(bytes_in_flight=1_000_000, frame_s=2.0, first_frame_s=60))
    half = bytes.fromhex("00f0000000000002") + b"{}" + bytes(400_000)
    async with serving(governor=governor) as port, trio.open_nursery() as nursery:
        streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(8)]
        for stream in streams:
            nursery.start_soon(send_until_closed, stream, half)
        await until(lambda: governor.statistics().partial_bytes > 800_000)
        assert governor.statistics().partial_bytes < 1_600_000
        async with open_channel("127.0.0.1", port) as other:
            assert (await other.ask(request(34, None, bytes(1000)))).code == 0
        for stream in streams:
            await read_to_end(stream)
        await until(lambda: governor.statistics().partial_bytes == 0)


async def send_until_closed(stream: trio.SocketStream, sent: bytes) -> None:
    try:
        await stream.send_all(sent)
    except trio.BrokenResourceError:
        pass


@pytest.mark.slow
async def test_a_peer_that_sends_byte_by_byte_gets_no_longer_than_the_first_frame_may_take() -> None:
    governor = Governor(Limits(first_frame_s=0.5))
    async with serving(governor=governor) as port, trio.open_nursery() as nursery:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        nursery.start_soon(trickle, stream)
        await until(lambda: governor.statistics().counted.get("closed_first"))
        nursery.cancel_scope.cancel()


async def trickle(stream: trio.SocketStream) -> None:
    try:
        for byte in encode_command(request(34)):
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.1)
    except trio.BrokenResourceError:
        pass


@pytest.mark.slow
async def test_a_peer_that_never_reads_is_closed_and_its_answers_dropped() -> None:
    governor = Governor(Limits(unsent_bytes=500_000, unsent_s=1.0))
    asked = encode_command(request(34, None, bytes(1_000_000)))
    async with (
        serving(governor=governor) as port,
        open_channel("127.0.0.1", port) as other,
        trio.open_nursery() as nursery,
    ):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        nursery.start_soon(send_until_closed, stream, asked * 40)
        with trio.fail_after(25):
            while not governor.statistics().counted.get("closed_unsent"):
                assert (await other.ask(request(34))).code == 0
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_silent_connection_is_closed_when_it_is_idle_and_a_speaking_one_stays() -> None:
    governor = Governor(Limits(idle_s=4.0))
    async with serving(governor=governor) as port, open_channel("127.0.0.1", port) as speaking:
        silent = await trio.open_tcp_stream("127.0.0.1", port)
        await silent.send_all(encode_command(request(34)))

        async def silent_is_closed() -> bool:
            assert (await speaking.ask(request(34))).code == 0
            return bool(governor.statistics().counted.get("closed_idle"))

        await until_it(silent_is_closed)
        assert b'"code":0' in await read_to_end(silent)
    assert governor.statistics().counted["closed_idle"] == 1


@pytest.mark.slow
async def test_without_descriptors_who_comes_is_closed_and_service_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    governor = Governor()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(governor=governor) as port, open_channel("127.0.0.1", port) as other:
        assert (await other.ask(request(34))).code == 0
        waiting = [trio.socket.socket() for _ in range(3)]
        lowest = waiting[0].fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(sock.fileno() for sock in waiting) + 1, hard))
        try:
            for sock in waiting:
                await sock.connect(("127.0.0.1", port))
            for sock in waiting:
                with trio.fail_after(25):
                    assert await sock.recv(1) == b""
            assert (await other.ask(request(34))).code == 0
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for sock in waiting:
                sock.close()
        assert lowest > 0
        async with open_channel("127.0.0.1", port) as later:
            assert (await later.ask(request(34))).code == 0
    assert governor.statistics().counted["no_descriptors"] >= 3
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=no_descriptors"]


@pytest.mark.slow
async def test_random_bytes_after_valid_frames_never_reach_the_others(caplog: pytest.LogCaptureFixture) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    valid = [encode_command(request(34, {"n": "1"})), encode_command(RemotingCommand(34, serialize_type=1))]

    async def attack(port: int) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            damaged = bytearray(dice.choice(valid) * 3)
            for _ in range(dice.randrange(1, 6)):
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
            await stream.send_all(dice.choice(valid) + dice.choice([bytes(damaged), dice.randbytes(200)]))
            with trio.move_on_after(0.05):
                await read_to_end(stream)

    governor = Governor()
    async with serving(governor=governor) as port, open_channel("127.0.0.1", port) as other:
        for _ in range(20):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(attack, port)
            assert (await other.ask(request(34, {"still": "there"}))).ext == {"still": "there"}
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert governor.statistics().connections == 1
    assert not [record for record in caplog.records if record.exc_info]
