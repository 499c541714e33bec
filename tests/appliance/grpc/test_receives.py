"""ReceiveMessage against a real box: what comes, to whom, in what form, and what comes again."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.grpc import receives, renewals
from appliance.grpc.outcome import Rejection
from appliance.grpc.receives import polling_s
from appliance.grpc.settings_waits import SettingsWaits
from netstack.grpc.frame_gate import RST_STREAM, frame_bytes
from netstack.grpc.testing import enveloped
from netstack.grpc.v2 import definition_pb2
from netstack.grpc.v2.service_pb2 import HeartbeatRequest, QueryRouteRequest, ReceiveMessageResponse
from tests.appliance.box import ask, connected, send
from tests.appliance.grpc.asking import (
    PATH,
    Asker,
    Code,
    acking,
    asking,
    consumer_settings,
    grpc_box,
    make_topic,
    message,
    producer_settings,
    receiving,
    sending,
    stored,
)

SQL = definition_pb2.FilterType.SQL
CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")  # of simple consumers, of push consumers


async def joined(client: Asker, group: str = "G", *, push: bool = False) -> int:
    number = await client.telemetry(consumer_settings(group, "T", push=push))
    (answer,) = await client.told(number, 1)
    assert answer.status.code == Code.OK
    return number


async def bodies(client: Asker, request: Any) -> list[bytes]:
    return [each.body for each in (await client.receive(request))[1]]


async def test_a_message_of_a_remoting_producer_is_received_and_acknowledged(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        await joined(client)
        async with connected(box) as line:
            await line.ask(send("T", b"hello", "UNIQ_KEY\x0101AB\x02TAGS\x01red\x02KEYS\x01k1 k2\x02own\x01x"))
        status, (found,) = await client.receive(receiving("G", "T", invisible_s=30))
        system = found.system_properties
        assert (status.code, found.body, dict(found.user_properties)) == (Code.OK, b"hello", {"own": "x"})
        assert (system.message_id, system.tag, list(system.keys)) == ("01AB", "red", ["k1", "k2"])
        assert (system.delivery_attempt, system.queue_offset) == (1, 0)
        acknowledged = await client.ask("AckMessage", acking("G", "T", found))
        assert (acknowledged.status.code, acknowledged.entries[0].status.code) == (Code.OK, Code.OK)


async def test_packed_messages_take_the_room_that_they_have_when_unpacked(tmp_path: Path) -> None:
    """32 of 4 MiB were an answer of 128 MiB, though they are small in the log: clients gave up before they had it."""
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        await joined(client)
        async with connected(box) as line:
            for number, size in enumerate((1 << 20, 1 << 20, 1000, 1000, 1000)):
                packed = send("T", zlib.compress(bytes(size)), f"UNIQ_KEY\x01{number}")
                packed.ext["f"] = "1"
                assert (await line.ask(packed)).code == 0
        answers = [(await client.receive(receiving("G", "T", invisible_s=60)))[1] for _ in range(3)]
        assert [[len(each.body) for each in found] for found in answers] == [[1 << 20], [1 << 20], [1000] * 3]
        assert {each.system_properties.delivery_attempt for found in answers for each in found} == {1}


@pytest.mark.slow
async def test_what_nobody_acknowledged_comes_again_in_time_and_never_before(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        await joined(client)
        await client.ask("SendMessage", sending(message("T")))
        began = trio.current_time()
        _, (first,) = await client.receive(receiving("G", "T", invisible_s=10))
        _, (again,) = await client.receive(receiving("G", "T", invisible_s=10, poll_s=20))
        assert 10 <= trio.current_time() - began < 12
        assert (again.body, again.system_properties.delivery_attempt) == (first.body, 2)
        assert again.topic.name == "T"
        late = await client.ask("AckMessage", acking("G", "T", first))
        assert late.status.code == Code.INVALID_RECEIPT_HANDLE
        assert (await client.ask("AckMessage", acking("G", "T", again))).status.code == Code.OK
        assert (await client.ask("AckMessage", acking("G", "T", again))).status.code == Code.OK


async def test_a_receiver_waits_for_a_message_and_gets_it_at_once(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client, asking(port, "other@2") as producer:
        await joined(client)
        found: list[bytes] = []

        async def wait() -> None:
            found.extend(await bodies(client, receiving("G", "T", poll_s=20)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await producer.ask("SendMessage", sending(message("T", b"late")))
        assert found == [b"late"]


@pytest.mark.slow
async def test_a_receiver_that_names_one_queue_gets_what_any_has(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, topics=()) as (box, port), asking(port) as client:
        await make_topic(box, "T", queues=4)
        await joined(client)
        for number in range(16):  # of one message group, so in one queue
            await client.ask("SendMessage", sending(message("T", b"%d" % number, message_group="one")))
        found = [
            body for queue in range(4) for body in await bodies(client, receiving("G", "T", queue_id=queue, batch=4))
        ]
        assert found == [b"%d" % number for number in range(16)]


async def test_nothing_is_a_status_of_its_own(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        await joined(client)
        status, messages = await client.receive(receiving("G", "T"))
        assert (status.code, messages) == (Code.MESSAGE_NOT_FOUND, [])


async def test_filters_by_tag_and_sql_select(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        await joined(client)
        for number, tag in enumerate(("a", "b", "c")):
            sent = message("T", tag.encode(), f"01{number}", tag=tag, properties={"n": str(number)})
            await client.ask("SendMessage", sending(sent))
        assert await bodies(client, receiving("Tags", "T", tags="a || c")) == [b"a", b"c"]
        assert await bodies(client, receiving("Sql", "T", tags="n >= 1", kind=SQL)) == [b"b", b"c"]


@pytest.mark.slow
async def test_a_message_tried_too_often_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        async with connected(box) as line:
            command = ask(200)
            command.body = b'{"groupName":"G","retryMaxTimes":0}'
            assert (await line.ask(command)).code == 0
        await joined(client)
        await client.ask("SendMessage", sending(message("T", b"bad")))
        _, (found,) = await client.receive(receiving("G", "T", invisible_s=10))
        change = {"receipt_handle": found.system_properties.receipt_handle}
        from netstack.grpc.v2.service_pb2 import ChangeInvisibleDurationRequest

        request = ChangeInvisibleDurationRequest(**change)
        request.group.name, request.topic.name = "G", "T"
        request.invisible_duration.SetInParent()
        assert (await client.ask("ChangeInvisibleDuration", request)).status.code == Code.OK
        status, messages = await client.receive(receiving("G", "T", invisible_s=10))
        assert (status.code, messages) == (Code.MESSAGE_NOT_FOUND, [])
        assert [each.body for each in await stored(box, "%DLQ%G")] == [b"bad"]


async def test_a_message_that_cannot_become_a_dead_letter_keeps_no_other_from_its_group(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, "[limits]\ntopics = 32\n") as (box, port), asking(port) as client:
        async with connected(box) as line:
            command = ask(200)
            command.body = b'{"groupName":"G","retryMaxTimes":0}'
            assert (await line.ask(command)).code == 0
            tried = send("T", b"bad")
            tried.ext["j"] = "5"  # so often it came before, says its sender
            assert (await line.ask(tried)).code == 0
            assert (await line.ask(send("T", b"good"))).code == 0
            codes = [(await line.ask(send(f"X{number}"))).code for number in range(32)]  # until no topic has room
            assert (codes[0], codes[-1]) == (0, 1)
        await joined(client)
        assert await bodies(client, receiving("G", "T", invisible_s=10)) == [b"good"]


@pytest.mark.slow
async def test_a_push_consumer_that_goes_gives_its_messages_back(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client, asking(port, "other@2") as other:
        await joined(client, push=True)
        await joined(other, push=True)
        await client.ask("SendMessage", sending(message("T")))
        assert await bodies(client, receiving("G", "T")) == [b"hello"]
        await client.client.stream.aclose()
        began = trio.current_time()
        _, (again,) = await other.receive(receiving("G", "T", poll_s=20))
        assert (again.body, again.system_properties.delivery_attempt) == (b"hello", 2)
        assert trio.current_time() - began < 5


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("INVISIBLE_MS", 2000), ("EVERY_S", 0.1), ("BEFORE_S", 1.5)):
        monkeypatch.setattr(renewals, name, value)
    monkeypatch.setattr(receives, "INVISIBLE_MS", 2000)


@pytest.mark.slow
async def test_what_a_lost_connection_had_comes_again_though_its_client_lives(
    tmp_path: Path, short_leases: None
) -> None:
    async with (
        grpc_box(tmp_path) as (_, port),
        asking(port) as lost,
        asking(port) as lives,
        asking(port, "o@2") as other,
    ):
        await joined(lives, push=True)
        await joined(other)
        await other.ask("SendMessage", sending(message("T")))
        assert await bodies(lost, receiving("G", "T")) == [b"hello"]
        await lost.client.stream.aclose()
        assert (await lives.ask("Heartbeat", HeartbeatRequest())).status.code == Code.OK
        _, (again,) = await other.receive(receiving("G", "T", invisible_s=30, poll_s=20))
        assert (again.body, again.system_properties.delivery_attempt) == (b"hello", 2)


@pytest.mark.slow
async def test_what_a_push_consumer_got_of_a_receive_that_failed_is_not_renewed(
    tmp_path: Path, short_leases: None
) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client, asking(port, "o@2") as other:
        await joined(client, push=True)
        await joined(other)
        client.client.acknowledging = False
        for number in range(2):
            await other.ask("SendMessage", sending(message("T", bytes(60_000), f"01{number}")))
        number = await client.client.begin(f"{PATH}ReceiveMessage", {**client.metadata, "grpc-timeout": "30S"})
        await client.client.send(number, enveloped(receiving("G", "T").SerializeToString()), end=True)
        while len(client.client.calls[number].body) < 65_000:
            await client.client.wait_changed()
        client.client.h2.reset_stream(number)
        await client.client.flush()
        found: set[str] = set()
        while len(found) < 2:
            _, messages = await other.receive(receiving("G", "T", invisible_s=30, poll_s=20))
            assert messages
            found |= {each.system_properties.message_id for each in messages}


@pytest.mark.slow
async def test_what_a_push_consumer_got_of_a_call_that_it_takes_back_at_its_end_comes_again_soon(
    tmp_path: Path,
) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client, asking(port, "o@2") as other:
        await joined(client, push=True)
        await joined(other)
        await other.ask("SendMessage", sending(message("T")))
        number = await client.client.begin(f"{PATH}ReceiveMessage", {**client.metadata, "grpc-timeout": "30S"})
        await client.client.send(number, enveloped(receiving("G", "T").SerializeToString()), end=True)
        await client.client.calls[number].ended.wait()
        await client.client.send_frame(frame_bytes(RST_STREAM, 0, number, (8).to_bytes(4, "big")))
        _, (again,) = await other.receive(receiving("G", "T", invisible_s=30, poll_s=20))
        assert (again.body, again.system_properties.delivery_attempt) == (b"hello", 2)


@pytest.mark.slow
async def test_what_a_broken_receive_did_not_send_comes_again_soon(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client, asking(port, "stuck@2") as stuck:
        await joined(client)
        await joined(stuck)
        stuck.client.acknowledging = False
        for number in range(4):
            await client.ask("SendMessage", sending(message("T", bytes(60_000), f"01{number}")))
        metadata = {**stuck.metadata, "grpc-timeout": "30S"}
        number = await stuck.client.begin(f"{PATH}ReceiveMessage", metadata)
        request = receiving("G", "T", invisible_s=3600)
        await stuck.client.send(number, enveloped(request.SerializeToString()), end=True)
        while len(stuck.client.calls[number].body) < 65_000:
            await stuck.client.wait_changed()
        stuck.client.h2.reset_stream(number)
        await stuck.client.flush()
        found: set[str] = set()
        while len(found) < 3:
            _, messages = await client.receive(receiving("G", "T", invisible_s=10))
            found |= {each.system_properties.message_id for each in messages}
        assert found == {"011", "012", "013"}, "the first was sent whole, the others were not"


REFUSED: list[tuple[int, dict[str, Any]]] = [
    (Code.ILLEGAL_INVISIBLE_TIME, {"invisible_s": 9}),
    (Code.ILLEGAL_INVISIBLE_TIME, {"invisible_s": 12 * 3600 + 1}),
    (Code.TOPIC_NOT_FOUND, {"topic": "Unknown"}),
    (Code.ILLEGAL_TOPIC, {"topic": "a b"}),
    (Code.ILLEGAL_CONSUMER_GROUP, {"group": "a b"}),
    (Code.ILLEGAL_FILTER_EXPRESSION, {"kind": SQL, "tags": "a >"}),
]


async def test_shorter_times_are_a_setting(tmp_path: Path) -> None:
    shorter = "min_invisible_ms = 2000\nmin_poll_ms = 0\n"
    async with grpc_box(tmp_path, shorter) as (_, port), asking(port) as client:
        await joined(client)
        status, _ = await client.receive(receiving("G", "T", invisible_s=2, poll_s=0))
        assert status.code == Code.MESSAGE_NOT_FOUND
        status, _ = await client.receive(receiving("G", "T", invisible_s=1, poll_s=0))
        assert (status.code, "min is 2000" in status.message) == (Code.ILLEGAL_INVISIBLE_TIME, True)


async def test_a_producer_does_not_receive(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        await client.told(await client.telemetry(producer_settings("T")), 1)
        status, _ = await client.receive(receiving("G", "T"))
        assert (status.code, "producer" in status.message) == (Code.UNRECOGNIZED_CLIENT_TYPE, True)


@pytest.mark.parametrize("push", [False, True], ids=["simple", "push"])
async def test_a_consumer_without_settings_is_known_by_its_receives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, push: bool
) -> None:
    """After a restart of the box Go and Python got 40015 for five minutes, Rust for ever."""
    monkeypatch.setattr(SettingsWaits.wait, "__defaults__", (0.05,))
    more: dict[str, Any] = {} if push else {"invisible_s": 30}
    async with grpc_box(tmp_path, topics=("T", "U")) as (box, port), asking(port) as client, connected(box) as line:
        await line.ask(send("T", b"hello"))
        _, (found,) = await client.receive(receiving("G", "T", **more))
        assert (await client.ask("AckMessage", acking("G", "T", found))).status.code == Code.OK
        assert (await client.ask("Heartbeat", HeartbeatRequest())).status.code == Code.OK
        await line.ask(send("U", b"more"))
        assert await bodies(client, receiving("G", "U", **more)) == [b"more"]
        members = json.loads((await line.ask(ask(203, consumerGroup="G"))).body)
        assert [each["clientId"] for each in members["connectionSet"]] == ["client@1"]
        assert (sorted(members["subscriptionTable"]), members["consumeType"]) == (["T", "U"], CONSUME_TYPES[push])
        status, _ = await client.receive(receiving("G", "Unknown", **more))
        assert status.code == Code.TOPIC_NOT_FOUND


async def test_a_receive_that_overtakes_the_settings_of_its_client_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SettingsWaits.wait, "__defaults__", (60.0,))
    async with grpc_box(tmp_path, "min_poll_ms = 0\n") as (box, port), asking(port) as client:
        async with connected(box) as line:
            await line.ask(send("T", b"hello"))
        request = enveloped(receiving("G", "T", poll_s=0).SerializeToString())
        patient = {**client.metadata, "grpc-timeout": "30S"}
        numbers = [await client.client.begin(f"{PATH}ReceiveMessage", patient) for _ in range(2)]
        for number in numbers:
            await client.client.send(number, request, end=True)
        await client.ask("QueryRoute", QueryRouteRequest())  # refused, and both are being served now
        assert not any(client.client.calls[number].messages for number in numbers)
        await joined(client)
        for number in numbers:
            with trio.fail_after(60):
                await client.client.calls[number].ended.wait()
        answers = [ReceiveMessageResponse.FromString(client.client.calls[each].messages[0]) for each in numbers]
        assert sorted(Code.Name(each.status.code) for each in answers) == ["MESSAGE_NOT_FOUND", "OK"]


async def test_what_is_wrong_with_a_receive_has_a_code(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        await joined(client)
        for code, fields in REFUSED:
            status, _ = await client.receive(receiving(**{"group": "G", "topic": "T", **fields}))
            assert Code.Name(status.code) == Code.Name(code), fields
        number = await client.client.begin(f"{PATH}ReceiveMessage", {**client.metadata, "grpc-timeout": "3S"})
        await client.client.send(number, enveloped(receiving("G", "T").SerializeToString()), end=True)
        await client.client.calls[number].ended.wait()
        first = ReceiveMessageResponse.FromString(client.client.calls[number].messages[0])
        assert first.status.code == Code.ILLEGAL_POLLING_TIME


@pytest.mark.slow
async def test_an_ordered_group_gets_a_queue_one_batch_after_the_other(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        async with connected(box) as line:
            command = ask(200)
            command.body = b'{"groupName":"G","consumeMessageOrderly":true}'
            assert (await line.ask(command)).code == 0
        number = await client.telemetry(consumer_settings("G", "T", push=True))
        (answer,) = await client.told(number, 1)
        assert answer.settings.subscription.fifo
        for count in range(4):
            await client.ask("SendMessage", sending(message("T", b"%d" % count, f"01{count}", message_group="g")))
        _, first = await client.receive(receiving("G", "T", queue_id=0, batch=2))
        assert [each.body for each in first] == [b"0", b"1"]
        status, _ = await client.receive(receiving("G", "T", queue_id=0, batch=2))
        assert status.code == Code.MESSAGE_NOT_FOUND, "the queue is blocked until the batch is acknowledged"
        assert (await client.ask("AckMessage", acking("G", "T", *first))).status.code == Code.OK
        assert await bodies(client, receiving("G", "T", queue_id=0, batch=2)) == [b"2", b"3"]


@pytest.mark.slow
async def test_receipts_survive_a_restart_and_nothing_acknowledged_comes_again(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        await joined(client)
        for number in range(4):
            await client.ask("SendMessage", sending(message("T", b"%d" % number, f"01{number}")))
        _, messages = await client.receive(receiving("G", "T", invisible_s=3600))
        assert len(messages) == 4
        assert (await client.ask("AckMessage", acking("G", "T", *messages[:2]))).status.code == Code.OK
    async with grpc_box(tmp_path, topics=()) as (_, port), asking(port) as client:
        await joined(client)
        assert (await client.ask("AckMessage", acking("G", "T", *messages[2:]))).status.code == Code.OK
        await client.ask("SendMessage", sending(message("T", b"new", "01N")))
        assert await bodies(client, receiving("G", "T", invisible_s=30)) == [b"new"]


@pytest.mark.slow
async def test_a_new_group_begins_at_the_first_message_of_a_young_topic_also_after_a_restart(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        for number in range(3):
            await client.ask("SendMessage", sending(message("T", b"%d" % number, f"01{number}")))
    async with grpc_box(tmp_path, topics=()) as (_, port), asking(port) as client:
        await joined(client, "Late")
        assert await bodies(client, receiving("Late", "T", invisible_s=30)) == [b"0", b"1", b"2"]


@pytest.mark.slow
async def test_two_generations_share_a_group_offset(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, topics=()) as (box, port), asking(port) as client:
        await make_topic(box, "T")
        await joined(client)
        for number in range(3):
            await client.ask("SendMessage", sending(message("T", b"%d" % number, f"01{number}")))
        _, messages = await client.receive(receiving("G", "T", invisible_s=30))
        await client.ask("AckMessage", acking("G", "T", *messages))
        async with connected(box) as line:
            answer = await line.ask(ask(14, consumerGroup="G", topic="T", queueId=0))
        assert answer.ext["offset"] == "3"


@pytest.mark.parametrize(
    ("asked_s", "left_s", "polls_s"), [(5, 30, 5), (1, 30, 5), (60, 60, 20), (20, 20, 19.5), (5, 4.99, 4.49)]
)
def test_an_answer_leaves_before_the_deadline_of_its_call(asked_s: int, left_s: float, polls_s: float) -> None:
    assert polling_s(receiving("G", "T", poll_s=asked_s), left_s, 5) == pytest.approx(polls_s)
    with pytest.raises(Rejection, match="not enough"):
        polling_s(receiving("G", "T", poll_s=asked_s), 4.4, 5)
    assert polling_s(receiving("G", "T", poll_s=0), left_s, 0) == 0
    assert polling_s(receiving("G", "T", poll_s=20), 0.4, 0) == 0
