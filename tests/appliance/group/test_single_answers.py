"""What a leader tells of tables waits for its lease, and for the log."""

import json

import pytest
import trio

from appliance.group import single_answers
from appliance.group.single_answers import SingleAnswers
from appliance.requests import Answer, AsyncReply, Reply, RequestPeer, settled
from appliance.testing import FakePeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand, request


class Table:
    """A table that counts how often it was saved."""

    def __init__(self) -> None:
        self.is_saved, self.saves, self.fails = True, 0, False
        self.unsaved: set[str] = set()

    def has_saved(self, group: str, _: object) -> bool:
        return group not in self.unsaved

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.fails:
            raise OSError("the change is not on the second disk after 3 s")
        self.is_saved, self.saves = True, self.saves + 1


class Leader:
    """Handlers of a leader: a commit changes the table."""

    def __init__(self) -> None:
        self.leads, self.refuses, self.asked, self.offsets, self.locks = True, False, 0, Table(), Table()
        codes = (Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET, Code.LOCK_BATCH_MQ, Code.GET_MAX_OFFSET)
        answers = SingleAnswers(lambda: self.leads, self.offsets, self.locks)
        self.handlers = answers.over({**dict.fromkeys(codes, self._handle), Code.HEART_BEAT: self._handle})

    def _handle(self, command: RemotingCommand, peer: RequestPeer) -> Answer:
        self.asked += 1
        if self.refuses:
            raise Refused(Code.QUERY_CONSUMER_OFFSET, "no offset")
        if command.code == Code.UPDATE_CONSUMER_OFFSET:
            self.offsets.is_saved, self.offsets.unsaved = False, {"g"}
        return Reply(command.reply())

    def ask(self, code: int, *, oneway: bool = False, group: str = "g") -> Answer:
        ext = {"consumerGroup": group, "topic": "T", "queueId": "0", "commitOffset": "7"}
        body = json.dumps({"consumerGroup": group, "clientId": "c", "mqSet": []}).encode()
        return self.handlers[code](request(code, ext, body, oneway=oneway), FakePeer())


async def test_a_commit_is_answered_once_the_log_has_it_and_so_is_who_asks_for_it() -> None:
    leader = Leader()
    assert type(leader.ask(Code.QUERY_CONSUMER_OFFSET)) is Reply
    committed = leader.ask(Code.UPDATE_CONSUMER_OFFSET)
    queried = leader.ask(Code.QUERY_CONSUMER_OFFSET)
    assert type(committed) is type(queried) is AsyncReply
    assert leader.offsets.saves == 0
    await settled(committed)
    await settled(queried)
    assert leader.offsets.saves == 1
    assert type(leader.ask(Code.LOCK_BATCH_MQ)) is Reply, "another table"


async def test_what_the_log_has_is_told_at_once_though_it_lacks_other_rows() -> None:
    leader = Leader()
    await settled(leader.ask(Code.UPDATE_CONSUMER_OFFSET))
    leader.offsets.is_saved = leader.locks.is_saved = False
    leader.offsets.unsaved = leader.locks.unsaved = {"other"}
    assert type(leader.ask(Code.QUERY_CONSUMER_OFFSET)) is Reply
    assert type(leader.ask(Code.LOCK_BATCH_MQ)) is Reply, "a lock that is renewed"
    assert type(leader.ask(Code.QUERY_CONSUMER_OFFSET, group="other")) is AsyncReply
    await settled(leader.ask(Code.LOCK_BATCH_MQ, group="other"))
    assert (leader.offsets.saves, leader.locks.saves) == (1, 1)


async def test_that_there_is_no_offset_is_told_once_the_log_has_it() -> None:
    leader = Leader()
    leader.refuses = True
    with pytest.raises(Refused, match="no offset"):
        leader.ask(Code.QUERY_CONSUMER_OFFSET)
    leader.offsets.is_saved, leader.offsets.unsaved = False, {"g"}  # they were dropped a moment ago
    answer = leader.ask(Code.QUERY_CONSUMER_OFFSET)
    assert type(answer) is AsyncReply
    with pytest.raises(Refused, match="no offset"):
        await settled(answer)
    assert leader.offsets.saves == 1


async def test_a_large_body_is_read_by_who_has_the_turn_and_the_waits_are_outside_of_it() -> None:
    leader = Leader()
    leader.leads = False
    queues = [{"topic": "T", "queueId": number, "brokerName": "b"} for number in range(2000)]
    body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()
    answer = leader.handlers[Code.LOCK_BATCH_MQ](request(Code.LOCK_BATCH_MQ, {}, body), FakePeer())
    assert isinstance(answer, AsyncReply)
    assert answer.needs_body
    assert answer.before is not None
    assert answer.after is not None
    assert leader.asked == 0, "it is read once this box leads"
    leader.leads = True
    await answer.before()
    await answer.run()
    assert leader.asked == 1


async def test_ends_of_queues_and_one_way_commits_wait_for_no_log() -> None:
    leader = Leader()
    assert type(leader.ask(Code.UPDATE_CONSUMER_OFFSET, oneway=True)) is Reply
    assert type(leader.ask(Code.GET_MAX_OFFSET)) is Reply


async def test_what_the_log_does_not_take_is_not_acknowledged() -> None:
    leader = Leader()
    leader.offsets.fails = True
    with pytest.raises(Refused, match="second disk") as caught:
        await settled(leader.ask(Code.UPDATE_CONSUMER_OFFSET))
    assert caught.value.code == 14
    assert await settled(leader.ask(Code.QUERY_CONSUMER_OFFSET)) is not None, "consumers go on meanwhile"


async def test_without_a_lease_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader()
    leader.leads = False
    waiting = leader.ask(Code.GET_MAX_OFFSET)
    assert leader.asked == 0
    assert type(leader.ask(Code.UPDATE_CONSUMER_OFFSET, oneway=True)) is Reply, "it would undo a later one"
    leader.leads, leader.asked = True, 0
    await settled(waiting)
    assert leader.asked == 1
    monkeypatch.setattr(single_answers, "WAIT_S", 0.01)
    leader.leads = False
    with pytest.raises(Refused, match="whether it leads"):
        await settled(leader.ask(Code.GET_MAX_OFFSET))
    assert leader.asked == 1
