"""Every data request by identity, mode and whose it touches: own, other's, nobody's, on real boxes."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from appliance.broker.access.accounts import WHITE_LISTED, Account
from appliance.broker.access.permissions import ACCESS
from appliance.broker.access.request_table import AccessClass
from appliance.broker.rights import NOBODY, Perm, may, may_touch, owner_of
from appliance.testing import FakePeer
from netstack.serving.channel import Channel
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand, request
from netstack.wire.conversation import Reply
from netstack.wire.message_headers import SendMessageHeader
from storage_driver.record import parse_message_id
from tests.appliance.box import Box, ask, connected, heartbeat, messages_of, pull, running_box, send
from tests.appliance.broker.pop_requests.requests import batch
from tests.appliance.keys import ADMIN, ADMIN_SECRET, KEYS_MODE, PUB, REMARK, SECRET, SUB, signed, write

ONE = Account("device-1", SECRET, topics={"MINE": PUB | SUB}, groups={"GMINE": SUB})
TWO = Account("device-2", SECRET, topics={"THEIRS": PUB | SUB}, groups={"GTHEIRS": SUB})
ALIKE = Account("device-3", SECRET, topics={"MINE": PUB | SUB}, groups={"GMINE": SUB})  # may do all that ONE may
CURIOUS = Account("device-4", SECRET, topic=SUB, group=SUB, topics={"THEIRS": Perm(0)})
OWN, OTHERS, NOBODYS = ("MINE", "GMINE"), ("THEIRS", "GTHEIRS"), ("NEITHER", "GNEITHER")
HALF, COMMIT = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01K\x02", 8
MODES = {"subnet": "", "open": "[access]\nmode = 'open'\n", "keys": KEYS_MODE}
QUICK = "[broker]\ntransaction_check_s = 1\ntransaction_timeout_s = 1\n"


def locks(code: int) -> Callable[[str, str], RemotingCommand]:
    return lambda topic, group: lock(code, topic, group, "c@1")


def lock(code: int, topic: str, group: str, client_id: str) -> RemotingCommand:
    queues = [{"topic": topic, "brokerName": "box", "queueId": 0}]
    return request(code, {}, json.dumps({"consumerGroup": group, "clientId": client_id, "mqSet": queues}).encode())


def queue(code: int, **more: object) -> Callable[[str, str], RemotingCommand]:
    return lambda topic, group: ask(code, topic=topic, queueId=0, consumerGroup=group, **more)


def body(code: int, **fields: object) -> Callable[[str, str], RemotingCommand]:
    return lambda topic, group: request(
        code, {}, json.dumps(fields | {"topic": topic, "consumerGroup": group, "clientId": "c@1"}).encode()
    )


REQUESTS: dict[int, Callable[[str, str], RemotingCommand]] = {
    **{code: lambda topic, group, code=code: send(topic, code=code) for code in (10, 310, 320, 324, 325)},  # type: ignore[misc]
    Code.PULL_MESSAGE: lambda topic, group: pull(topic, group=group),
    Code.LITE_PULL_MESSAGE: lambda topic, group: request(Code.LITE_PULL_MESSAGE, pull(topic, group=group).ext),
    Code.CONSUMER_SEND_MSG_BACK: lambda topic, group: ask(36, offset=0, group=group, delayLevel=0, originTopic=topic),
    Code.RECALL_MESSAGE: queue(Code.RECALL_MESSAGE, recallHandle="x", producerGroup="PG"),
    Code.HEART_BEAT: lambda topic, group: heartbeat("c@1", consumers={group: {topic: "*"}}),
    Code.UNREGISTER_CLIENT: queue(Code.UNREGISTER_CLIENT, clientID="c@1"),
    Code.GET_CONSUMER_LIST_BY_GROUP: queue(Code.GET_CONSUMER_LIST_BY_GROUP),
    Code.QUERY_CONSUMER_OFFSET: queue(Code.QUERY_CONSUMER_OFFSET),
    Code.UPDATE_CONSUMER_OFFSET: queue(Code.UPDATE_CONSUMER_OFFSET, commitOffset=0),
    Code.LOCK_BATCH_MQ: locks(41),
    Code.UNLOCK_BATCH_MQ: locks(42),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: queue(Code.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=0),
    Code.GET_MAX_OFFSET: queue(Code.GET_MAX_OFFSET),
    Code.GET_MIN_OFFSET: queue(Code.GET_MIN_OFFSET),
    Code.GET_EARLIEST_MSG_STORETIME: queue(Code.GET_EARLIEST_MSG_STORETIME),
    Code.QUERY_MESSAGE: queue(Code.QUERY_MESSAGE, key="K", maxNum=1, beginTimestamp=0, endTimestamp=1),
    Code.QUERY_ASSIGNMENT: body(Code.QUERY_ASSIGNMENT, strategyName="AVG", messageModel="CLUSTERING"),
    Code.POP_MESSAGE: queue(Code.POP_MESSAGE, maxMsgNums=1, invisibleTime=1, pollTime=0),
    Code.ACK_MESSAGE: queue(Code.ACK_MESSAGE, offset=0, extraInfo="0 1 2 0 0 b 0 0"),
    Code.CHANGE_MESSAGE_INVISIBLETIME: queue(
        Code.CHANGE_MESSAGE_INVISIBLETIME, offset=0, extraInfo="0 1 2 0 0 b 0 0", invisibleTime=1
    ),
    Code.BATCH_ACK_MESSAGE: lambda topic, group: batch({"c": group, "t": topic, "b": "AQ=="}),
    Code.PEEK_MESSAGE: queue(Code.PEEK_MESSAGE, maxMsgNums=1),
    Code.NOTIFICATION: queue(Code.NOTIFICATION, pollTime=0),
    Code.POLLING_INFO: queue(Code.POLLING_INFO),
    # whose these touch is not in the request, or nothing is: below, or for whoever has a key
    Code.END_TRANSACTION: queue(37, producerGroup="PG", tranStateTableOffset=99, commitLogOffset=0, commitOrRollback=8),
    Code.VIEW_MESSAGE_BY_ID: queue(Code.VIEW_MESSAGE_BY_ID, offset=0),
    Code.CHECK_CLIENT_CONFIG: body(Code.CHECK_CLIENT_CONFIG),
    Code.GET_ROUTEINFO_BY_TOPIC: queue(Code.GET_ROUTEINFO_BY_TOPIC),
}
BY_KEY_ALONE = {Code.END_TRANSACTION, Code.CHECK_CLIENT_CONFIG, Code.GET_ROUTEINFO_BY_TOPIC}


async def denied(line: Channel, command: RemotingCommand) -> bool:
    """Return whether a request was refused for who sent it."""
    answer = await line.ask(command)
    return answer.code == 16 or (answer.remark or "").startswith(REMARK)


@asynccontextmanager
async def box_of(data: Path, mode: str, more: str = "") -> AsyncIterator[Box]:
    write(data, ONE, TWO, ALIKE, CURIOUS, ADMIN)
    async with running_box(data, MODES[mode] + more) as box:
        yield box


def test_the_table_holds_every_data_request() -> None:
    assert set(map(int, REQUESTS)) == {code for code, kind in ACCESS.items() if kind is AccessClass.DATA}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_every_data_request_by_identity_mode_and_whose(tmp_path: Path, mode: str) -> None:
    wrong: list[object] = []
    async with box_of(tmp_path, mode) as box, AsyncExitStack() as stack:
        lines = {
            port: await stack.enter_async_context(connected(box, port)) for port in (box.broker_port, box.namesrv_port)
        }
        for code, make in REQUESTS.items():
            line = lines[box.namesrv_port if code == Code.GET_ROUTEINFO_BY_TOPIC else box.broker_port]
            for whose in (OWN, OTHERS, NOBODYS):
                mine = (whose is OWN and code != Code.VIEW_MESSAGE_BY_ID) or code in BY_KEY_ALONE
                expected = {  # loopback is let in without a key wherever the mode is not keys
                    "nobody": mode == "keys",
                    "user": mode == "keys" and not mine,
                    "forged": mode == "keys",
                    "admin": False,
                }
                made = {
                    "nobody": make(*whose),
                    "user": signed(make(*whose), "device-1", SECRET),
                    "forged": signed(make(*whose), "device-2", "not-its-secret"),
                    "admin": signed(make(*whose), "admin-1", ADMIN_SECRET),
                }
                found = {identity: await denied(line, command) for identity, command in made.items()}
                wrong += [(code, whose, found)] if found != expected else []
    assert wrong == []


@pytest.mark.parametrize(
    ("signer", "owner", "allowed"),
    [
        (ONE, "device-1", True),
        (ONE, "device-2", False),
        (ONE, NOBODY, True),
        (ADMIN, "device-1", True),
        (WHITE_LISTED, "device-1", True),
        (None, "device-1", True),
    ],
)
def test_a_key_touches_what_it_brought_and_what_nobody_did(signer: Account | None, owner: str, allowed: bool) -> None:
    assert may_touch(signer, owner) is allowed


def test_a_white_listed_address_brings_what_is_nobodys() -> None:
    peer = FakePeer()
    owners = []
    for peer.signer in (None, WHITE_LISTED, ONE, ADMIN):
        owners.append(owner_of(peer))
    assert owners == [NOBODY, NOBODY, "device-1", "admin-1"]


@pytest.mark.parametrize(
    "topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "DefaultCluster_REPLY_TOPIC"]
)
def test_no_default_opens_a_topic_where_messages_of_all_topics_rest(topic: str) -> None:
    assert (may(CURIOUS, topic, Perm.SUB), may(CURIOUS, "whatever", Perm.SUB)) == (False, True)
    assert may(Account("device-5", SECRET, topics={topic: SUB}), topic, Perm.SUB)
    assert may(ADMIN, topic, Perm.SUB)


def position(answer: RemotingCommand) -> tuple[int, int]:
    """Return queue and log offset of what was stored."""
    return int(answer.ext["queueOffset"]), parse_message_id(answer.ext["msgId"])[1]


def commit(half: RemotingCommand) -> RemotingCommand:
    queue_offset, log_offset = position(half)
    fields = {"tranStateTableOffset": queue_offset, "commitLogOffset": log_offset, "commitOrRollback": COMMIT}
    return ask(37, producerGroup="PG", transactionId="K", **fields)


@pytest.mark.slow
async def test_a_half_message_is_ended_by_its_key_alone_and_nobodys_by_who_may_send_there(tmp_path: Path) -> None:
    async with box_of(tmp_path, "subnet") as box, connected(box) as line:
        nobodys = await line.ask(send("MINE", b"before", HALF))
    async with box_of(tmp_path, "keys") as box, connected(box) as line:
        half = await line.ask(signed(send("MINE", b"pay", HALF + "RBX_OWNER\x01device-3\x02")))
        for key in ("device-2", "device-3"):  # the third may send to the topic too, and claimed the half for itself
            answer = await line.ask(signed(commit(half), key))
            assert (answer.code, "another key" in str(answer.remark)) == (16, True)
        assert (await line.ask(signed(commit(nobodys), "device-2"))).code == 16
        assert messages_of(await line.ask(signed(pull("MINE", group="GMINE")))) == []
        assert (await line.ask(signed(commit(half)))).code == 0
        assert (await line.ask(signed(commit(nobodys), "device-3"))).code == 0
        found = messages_of(await line.ask(signed(pull("MINE", group="GMINE"))))
        assert [(message.body, message.property_map.get("RBX_OWNER")) for message in found] == [
            (b"pay", None),
            (b"before", None),
        ]


@pytest.mark.slow
async def test_only_producers_of_the_same_key_are_asked_about_a_half_message(tmp_path: Path) -> None:
    asked: dict[str, list[RemotingCommand]] = {"device-1": [], "device-2": [], "device-3": []}
    heard = trio.Event()

    def hears(key: str) -> Callable[[RemotingCommand, object], Reply]:
        def on_request(command: RemotingCommand, _: object) -> Reply:
            asked[key].append(command)
            if key == "device-1":
                heard.set()
            return Reply(command.reply())

        return on_request

    async with box_of(tmp_path, "keys", QUICK) as box, AsyncExitStack() as stack:
        lines = {key: await stack.enter_async_context(connected(box, handle=hears(key))) for key in asked}
        async with connected(box) as sender:
            assert (await sender.ask(signed(send("MINE", b"pay", HALF)))).code == 0
        for key in ("device-2", "device-3"):
            assert (await lines[key].ask(signed(heartbeat("c@1", producers=("PG",)), key))).code == 0
        with trio.fail_after(60):
            await trio.lowlevel.checkpoint()
            assert (await lines["device-1"].ask(signed(heartbeat("c@2", producers=("PG",))))).code == 0
            await heard.wait()
        assert (asked["device-2"], asked["device-3"]) == ([], [])
        assert b"RBX_OWNER" not in asked["device-1"][0].body


@pytest.mark.slow
async def test_a_reply_reaches_the_key_that_asked_and_only_from_who_can_read_the_question(tmp_path: Path) -> None:
    pushed: dict[str, list[bytes]] = {"device-1": [], "device-2": []}

    def hears(key: str) -> Callable[[RemotingCommand, object], Reply]:
        def on_request(command: RemotingCommand, _: object) -> Reply:
            pushed[key].append(command.body)
            return Reply(command.reply())

        return on_request

    def reply(content: bytes, correlation: str = "id-1") -> RemotingCommand:
        properties = f"CORRELATION_ID\x01{correlation}\x02REPLY_TO_CLIENT\x01c@1\x02MSG_TYPE\x01reply\x02"
        header = SendMessageHeader("RG", "DefaultCluster_REPLY_TOPIC", "TBW102", 4, 0, 0, 1, 0, properties)
        return request(Code.SEND_REPLY_MESSAGE_V2, header.to_ext(), content)

    async with box_of(tmp_path, "keys") as box, AsyncExitStack() as stack:
        lines = {key: await stack.enter_async_context(connected(box, handle=hears(key))) for key in pushed}
        question = "CORRELATION_ID\x01id-1\x02REPLY_TO_CLIENT\x01c@1\x02"
        await lines["device-1"].ask(signed(send("MINE", b"?", question)))
        await lines["device-2"].ask(signed(send("THEIRS", b"?", question), "device-2"))  # claims id and client
        await lines["device-2"].ask(signed(heartbeat("c@1", producers=("PG",)), "device-2"))
        async with connected(box) as line:
            assert (await line.ask(signed(reply(b"yes"), "device-3"))).code == 0
            assert (await line.ask(signed(reply(b"forged"), "device-2"))).code == 1
            assert (
                await line.ask(signed(reply(b"whose?", "id-2"), "device-3"))
            ).code == 1  # two keys have the client id
        assert pushed == {"device-1": [b"yes"], "device-2": []}


@pytest.mark.slow
async def test_a_lock_is_held_by_a_client_of_its_key_whatever_id_another_key_gives(tmp_path: Path) -> None:
    async with box_of(tmp_path, "keys") as box, connected(box) as line:
        assert b"MINE" in (await line.ask(signed(lock(41, *OWN, "c@1")))).body
        assert (await line.ask(signed(lock(42, *OWN, "c@1"), "device-3"))).code == 0
        assert b"MINE" not in (await line.ask(signed(lock(41, *OWN, "c@1"), "device-3"))).body
        assert (await line.ask(signed(lock(42, *OWN, "c@1")))).code == 0
        assert b"MINE" in (await line.ask(signed(lock(41, *OWN, "c@1"), "device-3"))).body


@pytest.mark.slow
async def test_a_place_in_the_log_opens_no_topic(tmp_path: Path) -> None:
    async with box_of(tmp_path, "keys") as box, connected(box) as line:
        _, theirs = position(await line.ask(signed(send("THEIRS", b"secret"), "device-2")))
        _, mine = position(await line.ask(signed(send("MINE", b"mine"))))
        _, half = position(await line.ask(signed(send("THEIRS", b"half", HALF), "device-2")))

        def send_back(offset: int) -> RemotingCommand:
            return signed(ask(36, offset=offset, group="GMINE", delayLevel=1, originTopic="MINE"))

        for offset in (theirs, half):
            assert "look message by offset failed" in str((await line.ask(send_back(offset))).remark)
            viewed = await line.ask(signed(ask(33, offset=offset), "device-4"))
            assert (viewed.code, viewed.body) == (1, b"")
        assert (await line.ask(send_back(mine))).code == 0
        assert b"mine" in (await line.ask(signed(ask(33, offset=mine), "device-4"))).body
        assert b"half" in (await line.ask(signed(ask(33, offset=half), "admin-1", ADMIN_SECRET))).body
