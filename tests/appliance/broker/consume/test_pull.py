"""Pulls: Apache's table of offsets and codes, filters, refusals in order, and how long polls end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from appliance import opening
from appliance.configuration.parts import store_config
from netstack.serving.channel import Channel
from netstack.wire.codes import RequestCode
from netstack.wire.command import FIRST_5X_VERSION, ONEWAY, RemotingCommand
from netstack.wire.message_headers import PullMessageHeader
from storage_driver.reader import HotSource
from storage_driver.reading import WouldBlock
from tests.appliance.box import Box, ask, connected, heartbeat, messages_of, pull, running_box, send
from tests.waiting import until

SUSPEND = 15_000


@asynccontextmanager
async def channel_to_box(tmp_path: Path, toml: str = "") -> AsyncIterator[Channel]:
    async with running_box(tmp_path, toml) as box, connected(box) as channel:
        yield channel


async def filled(channel: Channel, count: int, tags: str = "", body: bytes = b"x") -> None:
    for _ in range(count):
        assert (await channel.ask(send("T", body, f"TAGS\x01{tags}\x02" if tags else ""))).code == 0


def outcome(answer: RemotingCommand) -> tuple[int, str | None, int]:
    return answer.code, answer.remark, int(answer.ext["nextBeginOffset"])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (0, (0, "FOUND", 3)),
        (2, (0, "FOUND", 3)),
        (-1, (21, "OFFSET_TOO_SMALL", 0)),
        (3, (19, "OFFSET_OVERFLOW_ONE", 3)),
        (8, (21, "OFFSET_OVERFLOW_BADLY", 3)),
    ],
)
async def test_the_offset_decides_code_and_next_offset(
    tmp_path: Path, asked: int, expected: tuple[int, str, int]
) -> None:
    async with channel_to_box(tmp_path) as channel:
        await filled(channel, 3)
        answer = await channel.ask(pull("T", asked))
        assert outcome(answer) == expected
        assert (answer.ext["minOffset"], answer.ext["maxOffset"], answer.ext["suggestWhichBrokerId"]) == ("0", "3", "0")


async def test_a_queue_without_messages_is_empty_at_zero_and_moved_elsewhere(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await filled(channel, 1)
        assert outcome(await channel.ask(pull("T", 0, queue_id=1)))[0::2] == (19, 0)
        assert outcome(await channel.ask(pull("T", 5, queue_id=1)))[0::2] == (21, 0)


async def test_a_corrected_offset_leaves_one_event_for_the_operator(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await filled(channel, 1)
        for _ in range(3):
            await channel.ask(pull("T", 7))
        await filled(channel, 1)  # durable after the event
        (event,) = messages_of(await channel.ask(pull("OFFSET_MOVED_EVENT", group="TOOLS_CONSUMER")))
        assert (event.property_map["TAGS"], event.property_map["KEYS"]) == ("CG", "CG")
        assert b'"offsetNew":1' in event.body
        assert b'"offsetRequest":7' in event.body


async def test_at_most_32_messages_and_256_kib_come_at_once(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await filled(channel, 40)
        assert len(messages_of(await channel.ask(pull("T", max_count=64)))) == 32
        assert len(messages_of(await channel.ask(pull("T", max_count=5)))) == 5
        for size, count in ((100 << 10, 10), (1 << 20, 1)):
            for _ in range(count):
                await channel.ask(send("T", b"x" * size, queue_id=1 + (count == 1)))
        assert len(messages_of(await channel.ask(pull("T", queue_id=1)))) == 2
        assert len(messages_of(await channel.ask(pull("T", queue_id=2)))) == 1


async def test_more_messages_come_at_once_where_the_box_allows_it(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path, "[broker]\npull_messages = 50\n") as channel:
        await filled(channel, 60)
        assert len(messages_of(await channel.ask(pull("T", 0, max_count=100)))) == 50
        assert len(messages_of(await channel.ask(pull("T", 0, max_count=40)))) == 40


async def test_only_the_wanted_tags_come_and_the_offset_passes_the_others(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        for tag in ("A", "B", "A", "C"):
            await filled(channel, 1, tag)
        answer = await channel.ask(pull("T", subscription="A || C"))
        assert [message.property_map["TAGS"] for message in messages_of(answer)] == ["A", "A", "C"]
        assert outcome(await channel.ask(pull("T", subscription="none"))) == (20, "NO_MATCHED_MESSAGE", 4)


async def test_what_was_given_but_not_committed_shows_in_the_group_s_progress(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await filled(channel, 3)
        await channel.ask(pull("T", 1, flags=PullMessageHeader.COMMIT_OFFSET, commit_offset=1))
        told = (await channel.ask(ask(208, consumerGroup="CG", topic="T"))).body
        assert b'"brokerOffset":3,"consumerOffset":1,' in told
        assert b'"pullOffset":3}' in told


async def test_sql_filters_by_properties(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        for number in range(6):
            await channel.ask(send("T", b"%d" % number, f"n\x01{number}\x02"))
        answer = await channel.ask(pull("T", subscription="n > 1 AND n < 4", expression_type="SQL92"))
        assert [message.body for message in messages_of(answer)] == [b"2", b"3"]
        assert int(answer.ext["nextBeginOffset"]) == 6
        assert outcome(await channel.ask(pull("T", subscription="n > 9", expression_type="SQL92"))) == (
            20,
            "NO_MATCHED_MESSAGE",
            6,
        )


@pytest.mark.parametrize(
    ("toml", "more", "code"),
    [
        ("[broker]\npermission = 2\n", {}, 16),
        ("", {"topic": "missing"}, 17),
        ("", {"queue_id": 4}, 1),
        ("", {"queue_id": -1}, 1),
        ("", {"subscription": "||"}, 23),
        ("", {"subscription": "a >", "expression_type": "SQL92"}, 23),
        ("", {"subscription": "x", "expression_type": "LUA"}, 23),
        ("[broker]\nproperty_filter = false\n", {"subscription": "a > 1", "expression_type": "SQL92"}, 1),
    ],
)
async def test_what_may_not_be_pulled_is_refused(tmp_path: Path, toml: str, more: dict[str, object], code: int) -> None:
    async with channel_to_box(tmp_path, toml) as channel:
        await channel.ask(send("T"))
        answer = await channel.ask(pull(**{"topic": "T", **more}))  # type: ignore[arg-type]
        assert answer.code == code
        assert answer.remark


async def test_a_pull_without_subscription_needs_the_group_s_heartbeat(tmp_path: Path) -> None:
    def registered(**more: object) -> RemotingCommand:
        request = pull("T", **more)  # type: ignore[arg-type]
        request.ext["sysFlag"] = str(int(request.ext["sysFlag"]) & ~PullMessageHeader.SUBSCRIPTION)
        return request

    async with channel_to_box(tmp_path) as channel:
        await channel.ask(send("T", b"a", "TAGS\x01A"))
        assert (await channel.ask(registered())).code == 24
        await channel.ask(heartbeat("c@1", consumers={"CG": {"other": "*"}}, version=5))
        assert (await channel.ask(registered())).code == 24
        await channel.ask(heartbeat("c@1", consumers={"CG": {"T": "B"}}, version=6))
        assert (await channel.ask(registered(sub_version=7))).code == 25
        assert (await channel.ask(registered(sub_version=6))).code == 20
        await channel.ask(heartbeat("c@1", consumers={"CG": {"T": "A"}}, version=7))
        assert len(messages_of(await channel.ask(registered(sub_version=7)))) == 1


async def test_361_is_the_same_pull(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await filled(channel, 1)
        request = pull("T", flags=PullMessageHeader.LITE_PULL)
        request.code = 361
        assert len(messages_of(await channel.ask(request))) == 1


async def test_an_offset_is_committed_even_by_a_pull_that_is_held(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await filled(channel, 8)
        channel.tell(pull("T", 8, suspend_ms=SUSPEND, flags=PullMessageHeader.COMMIT_OFFSET, commit_offset=7))
        assert (await channel.ask(ask(14, consumerGroup="CG", topic="T", queueId=0))).ext == {"offset": "7"}


@asynccontextmanager
async def parked(box: Box, request: RemotingCommand) -> AsyncIterator[list[RemotingCommand]]:
    """Have a pull waiting at the broker; yields the list that gets its answer."""
    answers: list[RemotingCommand] = []
    async with connected(box) as channel, trio.open_nursery() as nursery:

        async def wait() -> None:
            answers.append(await channel.ask(request, timeout_s=60))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await channel.ask(ask(30, topic="T", queueId=0))  # the broker reads in order: now it waits
        yield answers


async def first_of(answers: list[RemotingCommand]) -> RemotingCommand:
    await until(lambda: answers)
    return answers[0]


async def test_an_arrival_with_another_tag_does_not_wake_a_pull_but_a_match_does(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as producer:
        await filled(producer, 1)
        async with parked(box, pull("T", 1, suspend_ms=SUSPEND, subscription="A")) as answers:
            await filled(producer, 5, "B")
            assert answers == []
            await filled(producer, 1, "A")
            answer = await first_of(answers)
            assert (len(messages_of(answer)), answer.ext["nextBeginOffset"]) == (1, "7")


async def test_a_change_of_the_subscription_answers_held_pulls_of_the_group(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as other:
        await filled(other, 1)
        await other.ask(heartbeat("c@1", consumers={"CG": {"T": "A"}}, version=1))
        async with parked(box, pull("T", 1, suspend_ms=SUSPEND, subscription="A")) as answers:
            await other.ask(heartbeat("c@1", consumers={"CG": {"T": "A"}}, version=1))
            assert answers == []
            await other.ask(heartbeat("c@1", consumers={"CG": {"T": "B"}}, version=2))
            assert (await first_of(answers)).code == 19


def of_5x(command: RemotingCommand) -> RemotingCommand:
    command.version = FIRST_5X_VERSION
    return command


async def test_a_reset_reaches_a_consumer_of_5_x_by_its_waiting_pull_at_once_and_only_once(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as other:
        await filled(other, 3)
        for queue_id in range(4):
            done = 3 if queue_id == 0 else 0
            commit = {"consumerGroup": "CG", "topic": "T", "queueId": queue_id, "commitOffset": done}
            assert (await other.ask(ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit))).code == 0
        await other.ask(of_5x(heartbeat("c@1", consumers={"CG": {"T": "*"}})))
        reset = ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="T", group="CG", timestamp=0, isForce="true")
        async with parked(box, of_5x(pull("T", 3, suspend_ms=SUSPEND))) as answers:
            assert (await other.ask(reset)).code == 0
            commits = pull("T", 3, queue_id=1, commit_offset=2, flags=PullMessageHeader.COMMIT_OFFSET)
            assert outcome(await other.ask(of_5x(commits))) == (21, "OFFSET_RESET", 0)
            answer = await first_of(answers)
            assert outcome(answer) == (21, "OFFSET_RESET", 0)
            assert (answer.ext["minOffset"], answer.ext["maxOffset"]) == ("0", "3")
        for queue_id in range(2):
            asked = {"consumerGroup": "CG", "topic": "T", "queueId": queue_id}
            assert (await other.ask(ask(RequestCode.QUERY_CONSUMER_OFFSET, **asked))).ext["offset"] == "0"
        assert outcome(await other.ask(of_5x(pull("T", 0)))) == (0, "FOUND", 3)
        assert outcome(await other.ask(pull("T", 5, queue_id=2)))[1] != "OFFSET_RESET", "4.9 is told by 220"
        assert outcome(await other.ask(of_5x(pull("T", 5, queue_id=2))))[1] != "OFFSET_RESET", "it was told"


async def test_a_reset_outlasts_the_offsets_of_a_consumer_that_rests_and_waits_for_its_next_pull(
    tmp_path: Path,
) -> None:
    async with running_box(tmp_path) as box, connected(box) as member, connected(box) as tool:
        await filled(tool, 3)
        report = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 3}
        for queue_id in range(4):
            await tool.ask(ask(RequestCode.UPDATE_CONSUMER_OFFSET, **report | {"queueId": queue_id}))
        await member.ask(of_5x(heartbeat("c@1", consumers={"CG": {"T": "*"}})))
        reset = ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="T", group="CG", timestamp=0, isForce="true")
        assert (await tool.ask(reset)).code == 0
        where = ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="CG", topic="T", queueId=0)
        done = of_5x(ask(RequestCode.UPDATE_CONSUMER_OFFSET, **report))
        done.flag |= ONEWAY
        for _ in range(2):  # every five seconds, for as long as it is paused
            member.tell(done)
            assert (await member.ask(where)).ext["offset"] == "0"
        assert outcome(await member.ask(of_5x(pull("T", 3)))) == (21, "OFFSET_RESET", 0)
        member.tell(done)
        assert (await member.ask(where)).ext["offset"] == "3", "what it does from then on counts"


@pytest.mark.slow
async def test_a_hold_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await filled(channel, 1)
        began = trio.current_time()
        assert outcome(await channel.ask(pull("T", 1, suspend_ms=400))) == (19, "OFFSET_OVERFLOW_ONE", 1)
        assert trio.current_time() - began > 0.39


async def test_a_pull_beyond_the_limit_of_parked_ones_is_refused_with_the_code_after_which_clients_rest(
    tmp_path: Path,
) -> None:
    async with running_box(tmp_path, "[limits]\nparked_pulls = 1\n") as box, connected(box) as channel:
        await filled(channel, 1)
        async with parked(box, pull("T", 1, suspend_ms=SUSPEND)) as answers:
            refused = await channel.ask(pull("T", 1, suspend_ms=SUSPEND))
            assert (refused.code, "limits.parked_pulls = 1" in (refused.remark or "")) == (2, True)
            assert (await channel.ask(pull("T", 1))).code == 19  # does not want to wait
            sql = pull("T", 1, suspend_ms=SUSPEND, subscription="n = 2", expression_type="SQL92")
            assert (await channel.ask(sql)).code == 2
            assert answers == []
            await filled(channel, 1)
            await first_of(answers)


async def test_a_sql_pull_waits_through_what_does_not_match(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as producer:
        await filled(producer, 1)
        request = pull("T", 1, suspend_ms=SUSPEND, subscription="n = 2", expression_type="SQL92")
        async with parked(box, request) as answers:
            await producer.ask(send("T", b"no", "n\x011"))
            await producer.ask(send("T", b"yes", "n\x012"))
            answer = await first_of(answers)
            assert [message.body for message in messages_of(answer)] == [b"yes"]
            assert answer.ext["nextBeginOffset"] == "3"


async def test_a_group_that_may_not_read_a_topic_is_told_so_and_others_read_it(tmp_path: Path) -> None:
    async with channel_to_box(tmp_path) as channel:
        await filled(channel, 1)
        assert (await channel.ask(pull("T"))).code == 0
        assert (await channel.ask(ask(353, group="CG", topic="T", readable="false"))).code == 0
        assert (await channel.ask(pull("T"))).code == 16
        assert (await channel.ask(pull("T", group="other"))).code == 0


@pytest.mark.pure
async def test_who_is_far_behind_is_sent_to_a_slave_where_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cold(*_: object) -> None:
        raise WouldBlock  # as where the messages are no longer in memory

    monkeypatch.setattr(HotSource, "log", cold)
    monkeypatch.setattr(opening, "store_config", lambda *given: store_config(*given)._replace(hot_bytes=500))
    for wanted, expected in (("true", ["1", "0"]), ("false", ["0", "0"])):
        toml = f"[replication]\nslave_reads = {wanted}\n"
        async with channel_to_box(tmp_path / wanted, toml) as channel:
            await filled(channel, 10)
            found = [await channel.ask(pull("T", at, max_count=1)) for at in (0, 9)]
            assert [answer.ext["suggestWhichBrokerId"] for answer in found] == expected
