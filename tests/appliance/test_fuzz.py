"""Any request code with any header and body: the box answers, keeps serving, and leaves no task behind."""

import os
import random
from pathlib import Path

import psutil
import pytest
import trio

from appliance.access.access import OWN_KEY, changing
from appliance.admin import short_path
from appliance.broker.access.accounts import Account, Accounts, perm_of
from netstack.wire.acl import sign
from netstack.wire.codes import RequestCode, names_of
from netstack.wire.command import RemotingCommand, request
from tests.appliance.box import Box, connected, heartbeat, messages_of, pull, running_box, send
from tests.appliance.broker.pop_requests.requests import pop
from tests.ports import free_port
from tests.waiting import until

SEED = int(os.environ.get("ROCKETBOX_TEST_SEED", "20240613"))
NAMES = (
    *(
        "topic",
        "consumerGroup",
        "producerGroup",
        "group",
        "groupName",
        "queueId",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
    ),
    *("commitOffset", "suspendTimeoutMillis", "subscription", "subVersion", "expressionType", "offset", "timestamp"),
    *("clientID", "clientId", "clientAddr", "delayLevel", "originMsgId", "originTopic", "commitLogOffset", "msgId"),
    *("tranStateTableOffset", "commitOrRollback", "key", "maxNum", "beginTimestamp", "endTimestamp", "defaultTopic"),
    *("readQueueNums", "writeQueueNums", "perm", "topicFilterType", "topicSysFlag", "order", "attributes", "statsName"),
    *(
        "statsKey",
        "namespace",
        "value",
        "brokerName",
        "brokerAddr",
        "brokerId",
        "clusterName",
        "haServerAddr",
        "isForce",
    ),
    *(
        "srcGroup",
        "destGroup",
        "removeOffset",
        "filterServerAddr",
        "cluster",
        "index",
        "count",
        "recallHandle",
        "unitMode",
    ),
    *"abcdefghijklmn",
)
VALUES = (
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "3",
        "7",
        "255",
        "32",
        "2147483647",
        "-2147483648",
        "9223372036854775807",
        "1e3",
        "0x10",
    ),
    *("9" * 40, "true", "false", "T", "TBW102", "%RETRY%CG", "%DLQ%CG", "%RETRY%", "SCHEDULE_TOPIC_XXXX", "CG", "box"),
    *(
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "a||b",
        "a > 1 AND b IS NULL",
        "SQL92",
        "TAG",
        "*",
        "../../etc",
        "ü\x00\x01\x02",
        "x" * 5000,
    ),
    *("DELAY\x013\x02", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02", "TIMER_DELAY_MS\x0199\x02", "TOPIC_PUT_NUMS", "T@CG"),
)
BODIES = (
    *(b"", b"{}", b"[]", b"null", b"{", b"\xff" * 40, b'{"clientID":"c"}', b'{"clientID":"c","consumerDataSet":[{}]}'),
    b'{"clientID":"c","consumerDataSet":[{"groupName":"CG","subscriptionDataSet":[{"topic":"T","codeSet":["x"]}]}]}',
    b'{"consumerGroup":"CG","clientId":"c","mqSet":[{"topic":"T","queueId":"0"},7]}',
    b'{"groupName":"g","retryQueueNums":-5}',
    b'{"topicConfigTable":{},"dataVersion":{}}',
    b'{"a":' * 200,
)
WAITS = {"suspendTimeoutMillis": "20"}  # a held pull is to come back within the test


STRANGE = (-5, 0, 9, 399, 3001, 65_535, 400_000, 2**31 - 1)
MOST_GROWN = 30 << 20
HTTP = (
    b"GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /message?at=0&topic=T HTTP/1.1\r\nHost: localhost\r\nCookie: token=x\r\n\r\n",
    b"GET /messages?topic=T&key=K&since=1h HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\ntoken=abc",
    b"POST /uplink HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndo=pa\r\n0\r\n\r\n",
    b'{"do": "access.own", "with": {}}\n',
    b'{"do": "uplink.status", "with": {"a": [[[]]]}}\n',
)
CODES = (*names_of(RequestCode), *STRANGE)
ROUNDS = int(os.environ.get("ROCKETBOX_FUZZ_ROUNDS", "6"))  # requests of each code at each port


def random_request(choose: random.Random, code: int) -> RemotingCommand:
    """Return a request of a kind; half of them with the fields that make sense for most."""
    ext = {choose.choice(NAMES): choose.choice(VALUES) for _ in range(choose.randrange(12))}
    if choose.random() < 0.5:
        ext = {"topic": "T", "consumerGroup": "CG", "group": "CG", "queueId": "0", "offset": "0", **ext}
    if choose.random() < 0.3:
        zeros = ("queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "subVersion")
        ext = {
            **dict.fromkeys(zeros, "0"),
            **dict(zip("abcdefgh", ("PG", "T", "TBW102", *"40000"), strict=True)),
            **ext,
        }
    made = request(code, ext | WAITS, choose.choice(BODIES))
    made.language = choose.choice(("JAVA", "CPP", "GO", "OTHER"))
    made.version = choose.choice((0, 121, 317, 409, 479))
    return made


@pytest.mark.slow
async def test_every_request_of_every_code_is_answered_whatever_it_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    choose = random.Random(SEED)
    print(f"seed {SEED}")
    async with running_box(tmp_path, listen="vip = true") as box:
        async with connected(box) as channel:
            await channel.ask(send("T", b"x"))
            await channel.ask(heartbeat("known", producers=("PG",)))
            await channel.ask(pop())  # from the first use on POP has tasks of its own
            at_rest = tasks_living()
            await ask_all(box, box.broker_port, choose)
            before = psutil.Process().memory_info().rss
            for port in (box.broker_port, box.namesrv_port, box.broker_port - 2):
                for _ in range(ROUNDS):
                    await ask_all(box, port, choose)
            await until(lambda: tasks_living() <= at_rest)  # those of ended connections too
            assert psutil.Process().memory_info().rss - before < MOST_GROWN
        faults = [record for record in caplog.records if "event=request_failed" in record.message]
        assert not faults, faults[0].message
        async with connected(box) as channel:
            await channel.ask(send("after", b"still here"))
            assert [m.body for m in messages_of(await channel.ask(pull("after", group="G2")))] == [b"still here"]


@pytest.mark.slow
async def test_whatever_knocks_at_page_metrics_and_sockets_the_box_stays_and_its_memory_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    choose, ports = random.Random(SEED + 3), (free_port(), free_port())
    toml = "[page]\nport = {}\n[metrics]\nport = {}\n".format(*ports)

    async def knock(door: int | str, sent: bytes) -> None:
        if isinstance(door, str):
            with short_path(Path(door)) as path:
                stream = await trio.open_unix_socket(path)
        else:
            stream = await trio.open_tcp_stream("127.0.0.1", door)
        async with stream:
            try:
                await stream.send_all(sent)
                await stream.send_eof()
                with trio.fail_after(30):
                    while await stream.receive_some(65536):
                        pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    async with running_box(tmp_path, toml) as box, connected(box) as channel:
        doors = (*ports, str(tmp_path / "run/metrics.sock"), str(tmp_path / "run/admin.sock"))
        await knock(ports[0], HTTP[0])
        await knock(ports[1], HTTP[1])
        before = psutil.Process().memory_info().rss
        for _ in range(20):
            async with trio.open_nursery() as nursery:
                for door in doors * 2:
                    nursery.start_soon(knock, door, mutant(choose))
        assert psutil.Process().memory_info().rss - before < MOST_GROWN
        assert (await channel.ask(send("T"))).code == 0
    assert not [record for record in caplog.records if record.exc_info]


def mutant(choose: random.Random) -> bytes:
    """Return a request that somebody spoilt: bytes changed, left out, repeated, or noise behind it."""
    made = bytearray(choose.choice(HTTP))
    for _ in range(choose.randrange(1, 8)):
        at = choose.randrange(len(made) or 1)
        made[at : at + choose.randrange(4)] = choose.choice((b"", choose.randbytes(3), b"\r\n", b"%00", b"\xff" * 900))
    return bytes(made) + choose.randbytes(choose.choice((0, 0, 40, 70_000)))


async def ask_all(box: Box, port: int, choose: random.Random) -> None:
    """Ask one request of each code over one connection, in any order."""
    async with connected(box, port) as channel:
        for code in choose.sample(CODES, len(CODES)):
            made = random_request(choose, code)
            with trio.fail_after(30):
                answer = await channel.ask(made, timeout_s=25)
            assert isinstance(answer.code, int), made
            assert answer.opaque == made.opaque or answer.is_response, made


def tasks_living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


@pytest.mark.slow
async def test_one_way_requests_of_any_kind_are_never_answered(tmp_path: Path) -> None:
    choose = random.Random(SEED + 1)
    async with running_box(tmp_path) as box, connected(box) as channel:
        for code in choose.sample(CODES, len(CODES)) * 3:
            channel.tell(random_request(choose, code))
        answer = await channel.ask(send("after", b"x"))
        assert answer.code == 0


@pytest.mark.slow
async def test_a_locked_box_answers_whatever_is_signed_wrongly_and_does_nothing_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    choose = random.Random(SEED + 2)
    path = tmp_path / "access/accounts.json"
    with changing(path) as replace:
        replace(Accounts({"device-key": Account("device-key", "device-secret", topics={"T": perm_of("SUB")})}))
    async with running_box(tmp_path, "[access]\nmode = 'keys'\nadmin = 'keys'\n") as box:
        accepted = set()
        for port in (box.broker_port, box.namesrv_port):
            async with connected(box, port) as channel:
                for code in choose.sample(CODES, len(CODES)):
                    made = random_request(choose, code)
                    names = ("device-key", "nobody-key", OWN_KEY, "", "x" * 5000, "\x00\n")
                    made.ext = {
                        **made.ext,
                        "AccessKey": choose.choice(names),
                        "Signature": choose.choice(("", "AAAA", "ü")),
                    }
                    made.ext |= choose.choice(({}, {"SecurityToken": "t"}, {"_UNIQUE_KEY_QUERY": "true"}))
                    with trio.fail_after(25):
                        answer = await channel.ask(made, timeout_s=8)
                    accepted |= {made.code} if answer.code not in (1, 3) else set()
        assert accepted == set()
        async with connected(box) as channel:
            signed = send("T", b"x")
            sign(signed, "device-key", "device-secret")
            assert "No default permission for topic:T" in str((await channel.ask(signed)).remark)
    assert not [record for record in caplog.records if "event=request_failed" in record.message]
    assert max(len(record.getMessage()) for record in caplog.records) < 1000
