"""A follower hands on what its leader has to answer: once, in bounds, and as it came."""

import pytest
import trio

from appliance.group import forwarding
from appliance.group.forwarding import BY_A_FOLLOWER, NOT_HERE, Forwarder
from appliance.group.leadership import FOLLOWER, Leadership, LeadershipState
from appliance.testing import FakePeer
from netstack.errors import Refused
from netstack.serving.peer import Peer
from netstack.serving.server import open_listeners, serve_remoting
from netstack.wire.codes import ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, AsyncReply, Reply
from netstack.wire.message_headers import SendMessageHeader
from tests.appliance.box import send
from tests.waiting import until

ELSEWHERE = LeadershipState(FOLLOWER, 3, "b", "", ready=False)
EXT = {"topic": "T", "Signature": "s", "AccessKey": "k"}


class Leader:
    """A broker that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[RemotingCommand] = []
        self.leads = True
        self.address = ""

    def handle(self, request: RemotingCommand, peer: Peer) -> Answer:
        self.asked.append(request)
        if not self.leads:
            return Reply(request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, f"not now: {NOT_HERE}"))
        return Reply(request.reply(0, "said", {"msgId": "1"}, b"body"))

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = await open_listeners("127.0.0.1", 0)
        self.address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_remoting, listeners, self.handle)
            task_status.started()
            await trio.sleep_forever()


async def answered(forwarder: Forwarder, request: RemotingCommand) -> RemotingCommand:
    found = forwarder.handle(request, FakePeer())
    assert isinstance(found, AsyncReply)
    answer = await found.run()
    assert isinstance(answer, RemotingCommand)
    return answer


async def test_the_leader_is_asked_what_the_client_asked_and_its_answer_goes_back() -> None:
    leader, leadership = Leader(), Leadership(LeadershipState())
    forwarder = Forwarder(leadership, "a", lambda: "nobody leads")
    async with trio.open_nursery() as nursery:
        await nursery.start(leader.run)
        nursery.start_soon(forwarder.run)
        request = RemotingCommand(12, 77, ext=EXT, body=b"given")
        async with trio.open_nursery() as waiting:
            found: list[RemotingCommand] = []

            async def ask() -> None:
                found.append(await answered(forwarder, request))

            waiting.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            leadership.set(ELSEWHERE._replace(address=leader.address))  # it waits for whoever leads next
        [answer], [asked] = found, leader.asked
        assert (answer.opaque, answer.code, answer.remark, answer.ext, answer.body) == (
            *(77, 0, "said"),
            *({"msgId": "1"}, b"body"),
        )
        assert (asked.code, asked.ext, asked.body, asked.remark) == (12, EXT, b"given", BY_A_FOLLOWER)
        oneway = RemotingCommand(15, 78, 2, ext=EXT)
        said = forwarder.handle(oneway, FakePeer())
        assert isinstance(said, AsyncReply)
        assert await said.run() is None
        await until(lambda: len(leader.asked) == 2)
        read = send("T", b"x")
        read.send, read.ext = SendMessageHeader.from_ext(read.ext), {}
        await answered(forwarder, read)
        assert leader.asked[-1].ext["b"] == "T"
        leader.leads = False
        async with trio.open_nursery() as waiting:
            waiting.start_soon(ask)
            await until(lambda: len(leader.asked) > 4)
            leader.leads = True
        assert found[-1].code == 0, "it is asked again while it does not lead yet"
        nursery.cancel_scope.cancel()


async def test_nothing_goes_round_in_circles_or_waits_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    forwarder = Forwarder(Leadership(LeadershipState()), "a", lambda: "nobody leads")
    request = send("T")
    request.remark = BY_A_FOLLOWER
    with pytest.raises(Refused, match=NOT_HERE):
        forwarder.handle(request, FakePeer())
    monkeypatch.setattr(forwarding, "WAIT_S", 0.0)
    with pytest.raises(Refused, match="nobody leads"):
        await answered(forwarder, send("T"))
    monkeypatch.setattr(forwarding, "MOST_WAITING", 0)
    with pytest.raises(Refused, match="nobody leads"):
        forwarder.handle(send("T"), FakePeer())
