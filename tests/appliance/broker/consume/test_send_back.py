"""A message that could not be consumed: retried later with its history, or dead in the end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from netstack.serving.channel import Channel
from netstack.wire.command import RemotingCommand, request
from storage_driver.record import StoredMessage
from tests.appliance.box import ask, connected, messages_of, pull, running_box, send

LEVEL_3 = 2  # queue of SCHEDULE_TOPIC_XXXX


@asynccontextmanager
async def box_with_a_message(tmp_path: Path, toml: str = "") -> AsyncIterator[tuple[Channel, StoredMessage]]:
    async with running_box(tmp_path, toml) as box, connected(box) as channel:
        await channel.ask(send("T", b"body", "UNIQ_KEY\x01K\x02TAGS\x01A\x02"))
        (message,) = messages_of(await channel.ask(pull("T", group="TOOLS_CONSUMER")))
        yield channel, message


def send_back(message: StoredMessage | int, level: int = 0, **more: object) -> RemotingCommand:
    offset = message if isinstance(message, int) else message.log_offset
    fields = {"offset": offset, "group": "CG", "delayLevel": level, "originTopic": "T", **more}
    return ask(36, **fields)


async def waiting(channel: Channel, queue_id: int) -> list[StoredMessage]:
    request = pull("SCHEDULE_TOPIC_XXXX", queue_id=queue_id)
    return messages_of(await channel.ask(request))


@pytest.mark.parametrize(("level", "queue_id"), [(0, LEVEL_3), (5, 4), (99, 17)])
async def test_it_rests_at_the_level_asked_or_the_third(tmp_path: Path, level: int, queue_id: int) -> None:
    async with box_with_a_message(tmp_path) as (channel, message):
        assert (await channel.ask(send_back(message, level))).code == 0
        (rests,) = await waiting(channel, queue_id)
        properties = rests.property_map
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("%RETRY%CG", "0")
        assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("T", message.message_id)
        assert (properties["UNIQ_KEY"], properties["TAGS"]) == ("K", "A")
        assert (rests.body, rests.reconsume_times, rests.born_ms) == (b"body", 1, message.born_ms)


@pytest.mark.parametrize(
    ("more", "version"),
    [({"level": -1}, 409), ({"maxReconsumeTimes": 0}, 409), ({"maxReconsumeTimes": 0}, 121)],
)
async def test_it_is_dead_when_the_consumer_or_the_limit_says_so(
    tmp_path: Path, more: dict[str, int], version: int
) -> None:
    async with box_with_a_message(tmp_path) as (channel, message):
        made = send_back(message, **more)
        made.version = version
        assert (await channel.ask(made)).code == 0
        (dead,) = messages_of(await channel.ask(pull("%DLQ%CG", group="TOOLS_CONSUMER")))
        assert (dead.body, dead.property_map["ORIGIN_MESSAGE_ID"]) == (b"body", message.message_id)
        assert "DELAY" not in dead.property_map


async def test_old_clients_limits_do_not_count(tmp_path: Path) -> None:
    async with box_with_a_message(tmp_path) as (channel, message):
        made = send_back(message, maxReconsumeTimes=0)
        made.version = 78
        assert (await channel.ask(made)).code == 0
        assert len(await waiting(channel, LEVEL_3)) == 1


@pytest.mark.parametrize("offset", [-1, 7, 1 << 40])
async def test_what_is_not_there_cannot_be_sent_back(tmp_path: Path, offset: int) -> None:
    async with box_with_a_message(tmp_path) as (channel, _):
        answer = await channel.ask(send_back(offset))
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")


async def test_refusals_come_in_apache_s_order(tmp_path: Path) -> None:
    async with box_with_a_message(tmp_path, "[broker]\nauto_create_groups = false\npermission = 4\n") as (
        channel,
        message,
    ):
        assert (await channel.ask(send_back(message))).code == 26
        assert (await channel.ask(send_back(message, group="TOOLS_CONSUMER"))).code == 16


async def test_a_group_without_retry_queues_loses_it_quietly(tmp_path: Path) -> None:
    async with box_with_a_message(tmp_path) as (channel, message):
        body = b'{"groupName":"CG","retryQueueNums":0}'
        assert (await channel.ask(request(200, {}, body))).code == 0
        assert (await channel.ask(send_back(message))).code == 0
        assert await waiting(channel, LEVEL_3) == []


async def test_a_topic_that_a_sender_made_up_is_not_counted_under_its_name(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"1", "RETRY_TOPIC\x01made-up\x02"))
        await channel.ask(send("T", b"2"))
        for message in messages_of(await channel.ask(pull("T", group="TOOLS_CONSUMER"))):
            assert (await channel.ask(send_back(message))).code == 0
        counted = [
            (await channel.ask(ask(315, statsName="SNDBCK_PUT_NUMS", statsKey=f"{topic}@CG"))).code
            for topic in ("T", "made-up")
        ]
        assert counted == [0, 1]


@pytest.mark.parametrize("times", [(1 << 31) - 1, -(1 << 31)])
async def test_the_largest_count_of_retries_stays_what_it_is(tmp_path: Path, times: int) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"body", reconsume_times=times))
        (message,) = messages_of(await channel.ask(pull("T", group="TOOLS_CONSUMER")))
        answer = await channel.ask(send_back(message))
        assert answer.code == 0, answer.remark
        if times > 0:
            (dead,) = messages_of(await channel.ask(pull("%DLQ%CG", group="TOOLS_CONSUMER")))
            assert dead.reconsume_times == times
