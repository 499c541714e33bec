from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from provisioning.device import serve_device
from provisioning.errors import LinkLost, ProvisioningError
from provisioning.flow import DesiredState, provision
from provisioning.frame import CHUNK, PROGRESS, RESULT, Message, SerialFrameDecoder, encode_frame
from provisioning.host import Bench, BenchConversation, choose_ports
from provisioning.port import PortCandidate, StreamLine, open_line, serve_socket
from provisioning.session import PROTO
from provisioning.testing import folder_box, signed_bundle

KNOWN = PortCandidate("/dev/ttyUSB0", "/dev/ttyUSB0 (FTDI FT232R)", True)
STRANGE = PortCandidate("/dev/ttyACM0", "/dev/ttyACM0 (Something)", False)


def test_known_adapters_are_asked_and_strangers_only_with_consent() -> None:
    questions: list[str] = []

    def ask(text: str) -> bool:
        questions.append(text)
        return True

    assert choose_ports([KNOWN, STRANGE], ask) == ["/dev/ttyUSB0"]
    assert questions == []
    assert choose_ports([STRANGE], ask) == ["/dev/ttyACM0"]
    assert len(questions) == 1
    assert choose_ports([STRANGE], lambda text: False) == []


@pytest.mark.slow
async def test_both_ends_talk_over_a_socket_as_over_a_cable(tmp_path: Path) -> None:
    box = folder_box(tmp_path / "box")
    bundle = signed_bundle(tmp_path, box, size=300_000)
    listener, name = await serve_socket()

    async def serve() -> None:
        stream = await listener.accept()
        await serve_device(StreamLine(stream, "box"), box)

    shown: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        line = await open_line(name)
        talk = BenchConversation(line, show=lambda stage, done, total: shown.append(stage))
        outcome = await provision(
            talk, await talk.identify(), Bench(b"f" * 32), DesiredState(bundle=bundle, version="1.4.0")
        )
        await line.aclose()
    assert (outcome.receipt or {})["version"] == "1.4.0"
    assert {"upload", "bundle"} <= set(shown)
    await listener.aclose()


@pytest.mark.parametrize("serial", ["../../etc/cron.d/x", "/root/x", "", "..", "a/b", "a" * 65, None, 7, b"RB1"])
async def test_what_is_no_serial_number_names_no_file_of_the_bench(serial: object) -> None:
    bench, box = memory_stream_pair()

    async def answer() -> None:
        ((_, number, *_),) = SerialFrameDecoder().feed(bytes(await box.receive_some()))
        await box.send_all(encode_frame([RESULT, number, {"proto": PROTO, "claimed": None, "serial": serial}]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        with pytest.raises(ProvisioningError, match="which is not a serial number") as raised:
            await BenchConversation(StreamLine(bench, "line")).identify()
    assert raised.value.code == "E105"
    await bench.aclose()
    await box.aclose()


async def test_a_request_that_no_box_would_take_is_told_at_once_and_not_sent() -> None:
    bench, box = memory_stream_pair()
    with pytest.raises(ProvisioningError, match="in another run") as raised:
        await BenchConversation(StreamLine(bench, "line")).request("plan", {"keys": {"ca.crt": bytes(9000)}})
    assert raised.value.code == "E401"
    await bench.aclose()
    assert await box.receive_some() == b""


async def test_a_box_that_shows_life_is_waited_for_however_often_it_falls_silent(autojump_clock: MockClock) -> None:
    bench, box = memory_stream_pair()

    async def work_slowly() -> None:
        (request,) = SerialFrameDecoder().feed(bytes(await box.receive_some()))
        for done in range(12):  # a restart on a processor that has no time: signs of life come late, again and again
            await trio.sleep(3.0)
            await box.send_all(encode_frame([PROGRESS, 0, "restart", done, 12]))
        await box.send_all(encode_frame([RESULT, request[1], {"receipt": 1}]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work_slowly)
        assert await BenchConversation(StreamLine(bench, "slow")).request("apply") == {"receipt": 1}


async def test_a_box_that_dies_while_it_sends_a_file_is_given_up(tmp_path: Path, autojump_clock: MockClock) -> None:
    bench, box = memory_stream_pair()

    async def answer_and_die() -> None:
        (request,) = SerialFrameDecoder().feed(bytes(await box.receive_some()))
        await box.send_all(encode_frame([RESULT, request[1], {"t": 1, "size": 1000, "sha256": "0" * 64}]))
        for _ in range(3):
            await trio.sleep(20)
            await box.send_all(encode_frame([CHUNK, 1, 0, b"half"]))  # a word now and then keeps it

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_and_die)
        with pytest.raises(LinkLost, match="nothing of the file for 30 s"):
            await BenchConversation(StreamLine(bench, "dying")).get("support", tmp_path / "support.tar.gz")
    assert trio.current_time() > 60


async def test_five_silences_in_a_row_are_a_box_that_is_gone(autojump_clock: MockClock) -> None:
    bench, box = memory_stream_pair()
    began_s = trio.current_time()
    with pytest.raises(ProvisioningError, match="E101 no box answers"):
        await BenchConversation(StreamLine(bench, "dead")).request("plan")
    assert trio.current_time() - began_s == pytest.approx(10.0, abs=0.1)
    await box.aclose()


async def test_the_echo_of_a_console_is_no_box_yet_and_no_reason_to_go_slower(autojump_clock: MockClock) -> None:
    bench, console = memory_stream_pair()

    async def echo_as_a_terminal_does() -> None:  # a box that still starts: control characters come back as ^A
        while asked := bytes(await console.receive_some()):
            shown = b"".join(b"^" + bytes([byte + 64]) if byte < 32 else bytes([byte]) for byte in asked)
            await console.send_all(b"Rocketbox starts from rocketbox-a\r\n" + shown)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(echo_as_a_terminal_does)
        with pytest.raises(ProvisioningError, match="E101 no box answers at starting, only console text or noise"):
            await BenchConversation(StreamLine(bench, "starting")).identify()
        await bench.aclose()


async def test_a_box_that_is_still_starting_has_seven_seconds_to_say_who_it_is(autojump_clock: MockClock) -> None:
    bench, box = memory_stream_pair()

    async def answer_late() -> None:
        request: Message = SerialFrameDecoder().feed(bytes(await box.receive_some()))[0]
        await trio.sleep(7.0)
        await box.send_all(encode_frame([RESULT, request[1], {"proto": 1, "serial": "RBX-0001"}]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_late)
        assert (await BenchConversation(StreamLine(bench, "slow")).identify())["serial"] == "RBX-0001"
