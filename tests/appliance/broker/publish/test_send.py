"""Sends: what is stored, what is answered, and every refusal with its code, in RocketMQ's order."""

import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest
import trio

from appliance.broker.intake import Space
from appliance.broker.publish import publishing, send_batch
from netstack.errors import Refused
from netstack.serving.channel import Channel
from netstack.testing import read_commands
from netstack.wire.command import RemotingCommand, encode_command
from storage_driver.appending import Appender
from storage_driver.errors import Full, MessageIllegal
from storage_driver.record import TRANSACTION_PREPARED, Parts, encode_properties
from storage_driver.statistics import BatchAppendResult
from tests.appliance.box import ask, connected, messages_of, pull, running_box, send


@asynccontextmanager
async def channel_to_box(tmp_path: Path, toml: str = "") -> AsyncIterator[Channel]:
    async with running_box(tmp_path, toml) as box, connected(box) as channel:
        yield channel


def properties(**pairs: str) -> str:
    return encode_properties(pairs).decode()


def batch(*items: tuple[bytes, bytes], topic: str = "T", shared: str = "", **more: object) -> RemotingCommand:
    body = b"".join(
        pack(">iiiii", 22 + len(body) + len(own), 0, 0, 7, len(body)) + body + pack(">H", len(own)) + own
        for body, own in items
    )
    return send(topic, body, shared, code=320, batch=True, **more)  # type: ignore[arg-type]


async def test_both_spellings_store_the_same_message(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        long_names = send("T", b"x", properties(TAGS="A", UNIQ_KEY="K"))
        short = dict(long_names.ext)
        names = ["producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"]
        names += ("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode")
        long_names.code, long_names.ext = 10, dict(zip(names, (short[c] for c in "abcdefghijk"), strict=True))
        assert (await channel.ask(long_names)).code == 0
        assert (await channel.ask(send("T", b"x", properties(TAGS="A", UNIQ_KEY="K2")))).code == 0
        first, second = messages_of(await channel.ask(pull("T")))
        assert first.property_map | {"UNIQ_KEY": ""} == second.property_map | {"UNIQ_KEY": ""}
        assert (first.body, first.born_ms, first.flag) == (second.body, second.born_ms, second.flag)


@pytest.mark.parametrize(
    ("topic", "more", "code", "remark"),
    [
        ("", {}, 1, "blank"),
        (" ", {}, 1, "blank"),
        ("bad!", {}, 1, "illegal characters"),
        ("x" * 128, {}, 1, "longer"),
        ("SCHEDULE_TOPIC_XXXX", {}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {}, 16, "forbidden"),
        ("rmq_sys_wheel_timer", {}, 16, "forbidden"),
        ("T", {"queue_id": 4}, 1, "request queueId[4] is illegal"),
        ("box", {"queue_id": 1}, 1, "illegal"),
        ("T", {"body": b"x" * (4 * 1024 * 1024 + 1)}, 13, "body of 4194305 bytes, allowed 4194304"),
        ("T", {"properties": "k\x01" + "v" * 32767}, 13, "32KB"),
    ],
)
async def test_refusals_have_their_code_and_the_fields_of_every_send_reply(
    tmp_path: Path, topic: str, more: dict[str, object], code: int, remark: str
) -> None:
    async with channel_to_box(tmp_path) as channel:
        answer = await channel.ask(send(topic, **more))  # type: ignore[arg-type]
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("DefaultRegion", "true")


async def test_the_most_properties_are_stored_and_more_are_refused_over_a_connection_that_stays(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        most = "".join(f"{number:03}\x01\x03\x02" for number in range(999)) + "k\x01" + "\x03" * 26_000 + "\x02"
        assert (await channel.ask(send("T", b"x", most))).code == 0, "JSON makes 190 KB of it"
        (message,) = messages_of(await channel.ask(pull("T")))
        assert message.property_map["k"] == "\x03" * 26_000
        answer = await channel.ask(send("T", b"x", f"k\x01{'中' * 32_769}\x02"))
        assert (answer.code, "32KB" in (answer.remark or "")) == (13, True)


async def test_a_refused_body_leaves_memory_at_once(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                assert (await channel.ask(send("SCHEDULE_TOPIC_XXXX", b"refused"))).code == 16
            left = [held for held in gc.get_objects() if type(held) is RemotingCommand and held.body == b"refused"]
        finally:
            gc.enable()
    assert len(left) <= 1


async def test_without_automatic_creation_an_unknown_topic_is_17(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path, "[broker]\nauto_create_topics = false\n") as channel:
        answer = await channel.ask(send("T"))
        assert (answer.code, "topic[T] not exist" in (answer.remark or "")) == (17, True)
        assert (await channel.ask(pull("T"))).code == 17


async def test_a_created_topic_takes_the_smaller_count_of_asked_and_template(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path, "queues_default = 2\n") as channel:  # in [store]
        assert (await channel.ask(send("T", queue_id=1))).code == 0
        assert (await channel.ask(send("T", queue_id=2))).code == 1


async def test_a_negative_queue_lets_the_broker_choose(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        chosen = {(await channel.ask(send("T", queue_id=-1))).ext["queueId"] for _ in range(40)}
        assert chosen == {"0", "1", "2", "3"}


async def test_a_write_disabled_broker_still_takes_what_is_not_ordered(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path, "[broker]\npermission = 4\n") as channel:
        assert (await channel.ask(send("T"))).code == 0


async def test_user_properties_in_unicode_come_back_as_they_were(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await channel.ask(send("T", b"x", properties(TAGS="ä", Straße="日本語 🚀", empty_not="0")))
        (message,) = messages_of(await channel.ask(pull("T")))
        assert message.property_map["Straße"] == "日本語 🚀"
        assert (message.property_map["TAGS"], message.property_map["empty_not"]) == ("ä", "0")


async def test_a_compressed_body_is_stored_as_it_came(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        request = send("T", b"\x78\x9c not looked at")
        request.ext["f"] = "1"
        await channel.ask(request)
        (message,) = messages_of(await channel.ask(pull("T")))
        assert (message.sys_flag & 1, message.body) == (1, b"\x78\x9c not looked at")


async def test_a_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        channel.tell(send("T", b"quiet"))
        await channel.ask(send("T", b"loud"))
        assert [m.body for m in messages_of(await channel.ask(pull("T")))] == [b"quiet", b"loud"]


async def test_the_messages_of_a_batch_follow_each_other_and_keep_their_own_properties(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        own = [properties(UNIQ_KEY=f"K{i}", TAGS="A", WAIT="true").encode() for i in range(3)]
        answer = await channel.ask(
            batch(*[(b"%d" % i, own[i]) for i in range(3)], shared=properties(UNIQ_KEY="BATCH", WAIT="true"))
        )
        messages = messages_of(await channel.ask(pull("T")))
        assert answer.ext["queueOffset"] == "0"
        assert answer.ext["msgId"].split(",") == [message.message_id for message in messages]
        assert [message.queue_offset for message in messages] == [0, 1, 2]
        assert [message.property_map["UNIQ_KEY"] for message in messages] == ["K0", "K1", "K2"]
        assert {message.property_map["CLUSTER"] for message in messages} == {"DefaultCluster"}
        assert [message.flag for message in messages] == [7, 7, 7]
        assert not any("WAIT" in message.property_map for message in messages)


async def test_a_message_of_a_batch_still_says_that_its_sender_did_not_want_to_wait(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        own = [properties(UNIQ_KEY=f"K{wait}", WAIT=wait).encode() for wait in ("false", "true")]
        await channel.ask(batch(*[(b"x", each) for each in own], shared=properties(WAIT="false")))
        messages = messages_of(await channel.ask(pull("T")))
        assert [message.property_map.get("WAIT", "true") for message in messages] == ["false", "true"]


async def test_java_s_batch_bytes_are_two_messages(tmp_path: Path) -> None:
    golden = bytes.fromhex(
        "000000240000000000000000000000000000000141000d4b015602574149540174727565"
        "000000210000000000000000000000000000000242430009574149540174727565"
    )
    async with channel_to_box(tmp_path) as channel:
        assert (await channel.ask(send("T", golden, code=320, batch=True))).code == 0
        messages = messages_of(await channel.ask(pull("T")))
        assert [(m.body, m.property_map.get("K")) for m in messages] == [(b"A", "V"), (b"BC", None)]


@pytest.mark.parametrize(
    ("body", "shared"),
    [
        (b"", ""),
        (b"\0" * 21, ""),
        (pack(">iiiii", 30, 0, 0, 0, -1) + b"\0" * 10, ""),
        (pack(">iiiii", 9999, 0, 0, 0, 1) + b"A\0\0", ""),
        (pack(">iiiii", 23, 0, 0, 0, 1) + b"A\0\1", ""),
        (pack(">iiiii", 23, 0, 0, 0, 1) + b"A\0\0", "DELAY\x013"),
    ],
)
async def test_a_batch_that_is_none_is_13_and_nothing_of_it_is_stored(tmp_path: Path, body: bytes, shared: str) -> None:
    async with channel_to_box(tmp_path) as channel:
        assert (await channel.ask(send("T", body, shared, code=320, batch=True))).code == 13
        assert (await channel.ask(ask(30, topic="T", queueId=0))).ext == {"offset": "0"}


async def test_a_message_retried_too_often_goes_to_the_dead_letters(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await channel.ask(send("%RETRY%CG", b"again", reconsume_times=1, max_reconsume_times=2))
        await channel.ask(send("%RETRY%CG", b"dead", reconsume_times=2, max_reconsume_times=2))
        retried = messages_of(await channel.ask(pull("%RETRY%CG")))
        dead = messages_of(await channel.ask(pull("%DLQ%CG")))
        assert ([m.body for m in retried], [m.body for m in dead]) == ([b"again"], [b"dead"])


async def test_a_retry_topic_of_an_unknown_group_is_26_when_groups_are_not_created(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path, "[broker]\nauto_create_groups = false\n") as channel:
        assert (await channel.ask(send("%RETRY%nobody"))).code == 26
        assert (await channel.ask(pull("TBW102", group="nobody"))).code == 26


async def test_half_messages_are_refused_where_the_configuration_says_so(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path, "[broker]\nreject_transactions = true\n") as channel:
        assert (await channel.ask(send("T", b"x", properties(TRAN_MSG="true", PGROUP="PG")))).code == 16


async def test_the_answer_to_a_half_message_names_its_transaction(tmp_path: Path) -> None:
    """Programs keep the id of the send result to know the check by: its UNIQ_KEY, as from Apache's broker of 5.x."""
    async with channel_to_box(tmp_path) as channel:
        half = send("T", b"x", properties(UNIQ_KEY="K1", TRAN_MSG="true", PGROUP="PG"))
        half.ext["f"] = str(TRANSACTION_PREPARED)
        answers = [await channel.ask(each) for each in (half, send("T", b"x", properties(UNIQ_KEY="K2")))]
        assert [answer.ext.get("transactionId") for answer in answers] == ["K1", None]


def test_senders_wait_while_the_uplink_says_so_and_it_hears_of_them() -> None:
    told: list[tuple[str, str]] = []
    space = Space()
    space.rejected = lambda topic, reason: told.append((topic, reason))
    space.check("T")
    space.refusal = lambda: "the backlog is full"
    with pytest.raises(Refused, match="code 14: service not available now: the backlog is full"):
        space.check("T")
    space.note("U", Full("no room"))
    space.note("U", MessageIllegal("long"))
    space.note("U", None)
    assert told == [("T", "reject_new"), ("U", "disk_full"), ("U", "too_large")]


class Turns(trio.abc.Instrument):
    """Counts how often all tasks had their turn."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


@pytest.mark.pure
async def test_long_batches_are_stored_one_at_a_time_and_others_go_on_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, stored, store = Turns(), list[int](), Appender.put_batch

    def noted(self: Appender, *arguments: Any, **options: Any) -> BatchAppendResult:
        stored.append(turns.count)
        return store(self, *arguments, **options)

    monkeypatch.setattr(Appender, "put_batch", noted)
    monkeypatch.setattr(send_batch, "LONG", 2)
    frames = [batch((b"1", b""), (b"2", b""), (b"3", b"")) for _ in range(5)]
    async with running_box(tmp_path) as box:
        stream = await trio.open_tcp_stream("127.0.0.1", box.broker_port)
        trio.lowlevel.add_instrument(turns)
        await stream.send_all(b"".join(encode_command(frame) for frame in frames))
        answers = await read_commands(stream, 5)
        trio.lowlevel.remove_instrument(turns)
        assert [int(answer.ext["queueOffset"]) for answer in answers] == [0, 3, 6, 9, 12]
        assert len(set(stored)) == 5
        await stream.aclose()


async def test_a_long_batch_that_cannot_be_stored_is_refused_as_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_batch, "LONG", 2)
    async with channel_to_box(tmp_path) as channel:
        answer = await channel.ask(batch((b"1", b""), (b"2", b""), (b"3", b""), shared=properties(DELAY="3")))
        assert (answer.code, answer.ext["TRACE_ON"]) == (13, "true")


@pytest.mark.pure
async def test_no_other_task_waits_while_a_long_batch_is_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, parse = list[int](), send_batch.parse_batch

    def noted(raw: bytes, most: int) -> Parts:
        threads.append(threading.get_ident())
        return parse(raw, most)

    monkeypatch.setattr(send_batch, "LONG", 2)
    monkeypatch.setattr(publishing, "parse_batch", noted)
    async with channel_to_box(tmp_path) as channel:
        await channel.ask(batch((b"1", b""), (b"2", b""), (b"3", b"")))
        await channel.ask(batch((b"1", b""), (b"2", b"")))
    here = threading.get_ident()
    assert [each == here for each in threads] == [False, True]
