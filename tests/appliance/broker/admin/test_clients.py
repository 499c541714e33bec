"""Questions that a connected consumer has to answer."""

from pathlib import Path

import pytest
import trio

from appliance.broker.admin import clients
from appliance.broker.tables.topics import Topic
from netstack.errors import AskTimeout, ChannelClosed
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand, request
from storage_driver.record import decode_record
from tests.appliance.admin_bench import bench
from tests.waiting import until


async def test_running_info_is_passed_on_and_back_unread(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        peer = b.consumer()
        peer.answers[307] = request(0).reply(0, "fine", {"x": "y"}, b"{raw:1}")
        ext = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
        response = await b.ask(Code.GET_CONSUMER_RUNNING_INFO, **ext)
        assert (response.code, response.remark, response.body) == (0, "fine", b"{raw:1}")
        assert peer.told == [(307, ext, b"")]


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [(AskTimeout("10.0.0.1:1", 307, 10.0), 207, "Timeout"), (ChannelClosed("10.0.0.1:1", "gone"), 1, "Exception")],
)
async def test_a_consumer_that_does_not_answer_is_reported(
    tmp_path: Path, failure: Exception, code: int, words: str
) -> None:
    async with bench(tmp_path) as b:
        b.consumer().answers[307] = failure
        refused = await b.refusal(Code.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1")
        assert refused[0] == code
        assert words in refused[1]


async def test_a_consumer_that_is_not_there_or_too_old_is_not_asked(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        refused = await b.refusal(Code.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1")
        assert refused == (1, "The Consumer <g> <c1> not online")
        peer = b.consumer()
        members = b.clients.consumers("g")
        assert members is not None
        members.members[peer].version = 61
        refused = await b.refusal(Code.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1")
        assert "too low" in refused[1]


async def test_a_message_is_consumed_directly_by_the_client_named(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.send()
        (message,) = await b.small.all("T")
        peer = b.consumer()
        peer.answers[309] = request(0).reply(body=b"{}")
        ext = {"consumerGroup": "g", "clientId": "c1", "msgId": message.message_id}
        assert (await b.ask(Code.CONSUME_MESSAGE_DIRECTLY, **ext)).body == b"{}"
        code, told, body = peer.told[0]
        assert (code, told) == (309, ext | {"brokerName": "box"})
        assert decode_record(body).body == b"0"
        assert (await b.ask(Code.CONSUME_MESSAGE_DIRECTLY, **ext | {"msgId": "nonsense"})).code == 1


async def test_a_dead_letter_that_a_consumer_took_directly_waits_for_nobody_any_more(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.put(Topic("%DLQ%g", 1, 1))
        await b.send(2, topic="%DLQ%g")
        first, second = await b.small.all("%DLQ%g")
        peer = b.consumer()
        for message, verdict in ((first, "CR_LATER"), (second, "CR_SUCCESS")):
            peer.answers[309] = request(0).reply(body=f'{{"consumeResult":"{verdict}"}}'.encode())
            ext = {"consumerGroup": "g", "clientId": "c1", "msgId": message.message_id}
            assert (await b.ask(Code.CONSUME_MESSAGE_DIRECTLY, **ext)).code == 0
        assert b.resent.to_json() == {"resent": [["%DLQ%g", 0, [1]]]}


async def test_status_is_gathered_from_all_members_that_answer(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        one, two = b.consumer(1), b.consumer(2)
        one.answers[221] = request(0).reply(
            body=b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"box","queueId":0,"topic":"T"}:12}}'
        )
        two.answers[221] = AskTimeout("x", 221, 5.0)
        ext = {"topic": "T", "group": "g", "clientAddr": ""}
        assert (await b.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **ext)).body == (
            b'{"consumerTable":{"c1":{{"brokerName":"box","queueId":0,"topic":"T"}:12}},"messageQueueTable":{}}'
        )
        assert (await b.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **ext | {"group": "x"})).code == 206


@pytest.mark.parametrize("code", [307, 309, 223])
async def test_a_question_that_is_large_is_not_kept_while_a_consumer_says_nothing(tmp_path: Path, code: int) -> None:
    async with bench(tmp_path) as b:
        b.consumer()
        id_ = "0A000001000000000000000000000000"
        ext = {"consumerGroup": "g", "clientId": "c1", "msgId": id_, "topic": "T", "group": "g"}
        refused = await b.refusal(code, **ext, more="x" * 20_000)
        assert refused[0] == 1
        assert "at most 16384 are passed on" in refused[1]


async def test_only_so_many_questions_wait_for_consumers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST_CALLS", 2)
    async with bench(tmp_path) as b:
        peer, asked = b.consumer(), list[RemotingCommand]()
        silent = trio.Event()

        async def never(code: int, ext: object, body: bytes = b"", *, timeout_s: float) -> RemotingCommand:
            await silent.wait()
            return request(0).reply()

        async def ask() -> None:
            asked.append(await b.ask(Code.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1"))

        monkeypatch.setattr(peer, "ask", never)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
            await until(lambda: asked)
            assert [(each.code, (each.remark or "")[:34]) for each in asked] == [
                (2, "2 questions to consumers wait for ")
            ]
            silent.set()
        assert [each.code for each in asked] == [2, 0, 0]
        await ask()
        assert asked[-1].code == 0
