"""The box and Apache's stock brokers as master and slave of one another: the same bytes, and reading goes on."""

import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop import jars
from tests.interop.apache_pair import ApacheBroker, apache_namesrv
from tests.interop.box import ROOT, Box, until
from tests.interop.client import producer, push_consumer, unique
from tests.interop.jvm import Jvm
from tests.interop.test_java_admin import admin
from tests.interop.test_kills import Senders
from tests.interop.wire import answered_code, command, frame, what_comes_back
from tests.ports import apache_port

pytestmark = pytest.mark.slow

SEGMENT_MIB = 16
KILLS = 3
FEW, MANY, ALL = 300, 8000, 100_000  # messages between two kills; in all, at least, where both sides are killed
BATCH = 50
WAIT_S = 600  # for a consumer of so many
NAME = "pair"
MASTER = f"[box]\nname = '{NAME}'\n[store]\nsegment_mib = {SEGMENT_MIB}\n[replication]\nrole = 'master'\n"
SLAVE = f"[box]\nname = '{NAME}'\n[store]\nsegment_mib = {SEGMENT_MIB}\n[replication]\nrole = 'slave'\n"


@contextmanager
def namesrv(folder: Path) -> Iterator[str]:
    """Run a NameServer of Apache's, which outlives the box."""
    try:
        with apache_namesrv(folder / "namesrv") as address:
            yield address
    except jars.Unavailable as error:
        pytest.skip(str(error))


def stock_slave(folder: Path, namesrv: str) -> ApacheBroker:
    same: dict[str, Any] = {"brokerName": NAME, "mappedFileSizeCommitLog": SEGMENT_MIB << 20}
    return ApacheBroker(folder, namesrv, **same, brokerRole="SLAVE", brokerId=1)


def log_files(store: Path) -> dict[str, bytes]:
    """Return the files of a CommitLog, without those that are made ahead of need."""
    found = {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir()) if path.name.isdecimal()}
    while len(found) > 1 and not any(found[max(found)]):
        del found[max(found)]
    return found


def same_log(one: Path, other: Path) -> bool:
    return log_files(one) == log_files(other)


def table(store: Path, name: str) -> dict[str, Any]:
    """Return a table of Apache's, whose numbers of queues are keys without quotes."""
    text = (store / "config" / f"{name}.json").read_text()
    found = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))
    assert isinstance(found, dict)
    return found


def send_many(
    jvm: Jvm, client: Any, topic: str, acknowledged: dict[str, bytes], *, many: int = MANY, expect: str = "SEND_OK"
) -> None:
    """Send so many messages in batches, and some that are larger than a slice."""
    times = 40 if many > FEW else 200  # a log of more than one file
    for number in range(many // BATCH):
        bodies = [b"%s/%d/%d " % (topic.encode(), len(acknowledged) + place, number) * times for place in range(BATCH)]
        result = client.send(jvm.messages(topic, bodies))
        assert expect in result.getSendStatus().toString()
        acknowledged |= zip(str(result.getMsgId()).split(","), bodies, strict=True)
    for size in (40_000, 500_000, 3_900_000):  # larger than a slice; nothing compresses them
        body = random.Random(len(acknowledged)).randbytes(size)
        acknowledged[str(client.send(jvm.message(topic, body)).getMsgId())] = body


def kill_one(victim: Box | ApacheBroker, senders: Senders) -> None:
    """Kill one side, start it again, go on when producers do."""
    victim.kill()
    victim.start()
    senders.wait_for_more(20)


@pytest.mark.feature("replication: a stock slave copies the box, and serves consumers while it is down")
@pytest.mark.parametrize("kills", [0, pytest.param(3, marks=pytest.mark.soak)])
def test_a_stock_slave_holds_the_same_bytes_and_is_read_while_the_box_is_down(
    jvm4: Jvm, tmp_path: Path, kills: int
) -> None:
    topic, dice, many = unique("pair"), random.Random(4), MANY if kills else FEW
    with namesrv(tmp_path) as outside:
        box = Box(tmp_path / "box", config=f"{MASTER}[namesrv]\nregister_at = ['{outside}']\n")
        box.start()
        slave = stock_slave(tmp_path / "slave", f"{box.namesrv};{outside}")
        acknowledged = dict[str, bytes]()
        reading = push_consumer(jvm4, box.namesrv, topic, group="before")
        with ExitStack() as consumers, producer(jvm4, box.namesrv) as client:
            senders = Senders(jvm4, client, topic)
            with senders.running():
                if kills:  # else after the restart: a stock consumer waits half a minute for an answer that was lost
                    before = consumers.enter_context(reading)
                for _ in range(kills):
                    slave.start()
                    send_many(jvm4, client, topic, acknowledged, many=many)
                    threading.Event().wait(dice.uniform(0, 8))  # its first report comes after five seconds
                    slave.kill()
                for _ in range(3 - kills):
                    send_many(jvm4, client, topic, acknowledged, many=many)
                box.kill()
                box.start()
                if not kills:
                    before = consumers.enter_context(reading)
                senders.wait_for_more(20)
                slave.start()
                while kills and len(acknowledged) + len(senders.acknowledged) < ALL:
                    send_many(jvm4, client, topic, acknowledged, many=many)
                    kill_one(dice.choice((slave, box)), senders)
                senders.wait_for_more(20)
            acknowledged |= senders.acknowledged
            before.wait_count(len(acknowledged), WAIT_S if kills else 60)
            until(lambda: same_log(box.data / "store", slave.store), seconds=90, what="the logs differ")
            print(f"{len(acknowledged)} acknowledged, {sum(map(len, log_files(slave.store).values()))} bytes alike")
            assert len(log_files(slave.store)) > 1
            with admin(jvm4, box) as tool:
                (row,) = list(tool.examineBrokerClusterInfo().getBrokerAddrTable().values())
                assert str(row.getBrokerAddrs().toString()) == f"{{0={box.broker}, 1={slave.address}}}"
            until(
                lambda: _beside_the_log(box.data / "store", slave.store, topic),
                seconds=60,
                what="offsets, topics or groups differ",
            )
        box.kill()
        with push_consumer(jvm4, outside, topic, group=unique("after")) as after:
            after.wait_count(len(set(acknowledged.values())), WAIT_S)
            seen = after.wait(lambda seen: {each.body for each in seen} >= set(acknowledged.values()), 120)
        assert {each.body for each in seen} >= set(acknowledged.values())
        slave.kill()


@pytest.mark.feature("replication: the box copies a stock master, and serves consumers while that is down")
@pytest.mark.soak
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_the_box_holds_the_bytes_of_a_stock_master_and_is_read_while_that_is_down(
    jvm4: Jvm, tmp_path: Path, role: str
) -> None:
    topic, dice = unique("pair"), random.Random(5)
    with namesrv(tmp_path) as outside:
        same: dict[str, Any] = {
            "brokerName": NAME,
            "mappedFileSizeCommitLog": SEGMENT_MIB << 20,
            "flushDiskType": "SYNC_FLUSH",
        }
        master = ApacheBroker(tmp_path / "master", outside, port=apache_port(), **same, brokerRole=role)
        master.start()
        box = Box(
            tmp_path / "box", config=f"{SLAVE}master = '{master.address}'\n[namesrv]\nregister_at = ['{outside}']\n"
        )
        acknowledged = dict[str, bytes]()
        with producer(jvm4, outside) as client, push_consumer(jvm4, outside, topic, group="before") as before:
            for _ in range(3):  # before there is a slave: more than one file
                send_many(jvm4, client, topic, acknowledged, expect="")
            box.start()
            until(lambda: "has everything" in status(box), seconds=60, what=lambda: status(box))
            send_many(jvm4, client, topic, acknowledged)  # SEND_OK of a SYNC_MASTER: the box has it
            senders = Senders(jvm4, client, topic)
            with senders.running():
                for _ in range(KILLS):
                    threading.Event().wait(dice.uniform(0, 3))
                    box.kill()
                    box.start()
                master.kill()
                master.start()
                senders.wait_for_more(20)
                until(lambda: "connected to" in status(box), seconds=60, what=lambda: status(box))
                while len(acknowledged) + len(senders.acknowledged) < ALL:
                    send_many(jvm4, client, topic, acknowledged, expect="")
                    kill_one(dice.choice((master, box)), senders)
            acknowledged |= senders.acknowledged
            before.wait_count(len(acknowledged), WAIT_S)
            until(lambda: same_log(box.data / "store", master.store), seconds=90, what=lambda: status(box))
            print(f"{len(acknowledged)} acknowledged, {sum(map(len, log_files(master.store).values()))} bytes alike")
            assert len(log_files(master.store)) > 1
            until(lambda: _beside_the_log(master.store, box.data / "store", topic), seconds=60, what="tables differ")
        master.kill()
        refused = {"producerGroup": "g", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
        refused |= {"queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": ""}
        with socket.create_connection(("127.0.0.1", box.broker_port), 5) as connection:
            connection.sendall(frame(command(10, **refused), b"body"))
            answer = what_comes_back(connection)
            assert (answered_code(answer), b"its master" in answer) == (14, True)
        with push_consumer(jvm4, outside, topic, group=unique("after")) as after:
            after.wait_count(len(set(acknowledged.values())), WAIT_S)
            seen = after.wait(lambda seen: {each.body for each in seen} >= set(acknowledged.values()), 120)
        assert {each.body for each in seen} >= set(acknowledged.values())
        assert box.stop() == 0


@pytest.mark.feature("replication: progress of slaves in the tools of 5.x")
def test_the_tools_of_5_show_each_slave_and_how_far_it_is(jvm5: Jvm, tmp_path: Path) -> None:
    box = Box(tmp_path / "box", config=MASTER)
    box.start()
    with socket.create_connection(("127.0.0.1", box.broker_port + 1), 5) as slave, admin(jvm5, box) as tool:
        with producer(jvm5, box.namesrv) as client:
            client.send(jvm5.message(unique("ha"), b"x" * 1000))
        slave.sendall(bytes(8))
        sent = b""
        while len(sent) < 1000:
            sent += slave.recv(1 << 16)
        seen = tool.getBrokerHAStatus(box.broker)
        (row,) = list(seen.getHaConnectionInfo())
        assert (seen.isMaster(), seen.getInSyncSlaveNums(), row.isInSync()) == (True, 1, True)
        assert row.getAddr() == f"127.0.0.1:{slave.getsockname()[1]}"
        assert row.getTransferFromWhere() == row.getDiff() == seen.getMasterCommitLogMaxOffset() >= 1000
    assert box.stop() == 0


def status(box: Box) -> str:
    command = [sys.executable, "-m", "appliance", "status", "--data", str(box.data)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ).stdout


def _beside_the_log(master: Path, slave: Path, topic: str) -> bool:
    """Tell whether a slave has its master's topics, groups and consumer offsets; Apache has fewer fields."""
    ours, theirs = master, slave
    if not (slave / "config" / "consumerOffset.json").exists():
        return False  # it is written some seconds later
    offsets = [table(store, "consumerOffset")["offsetTable"].get(f"{topic}@before") for store in (ours, theirs)]
    topics, groups = (
        _has_rows(table(ours, name)[rows], table(theirs, name)[rows])
        for name, rows in (("topics", "topicConfigTable"), ("subscriptionGroup", "subscriptionGroupTable"))
    )
    return topics and groups and None is not offsets[0] == offsets[1]


def _has_rows(ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]) -> bool:
    return all(name in theirs and _alike(row, theirs[name]) for name, row in ours.items() if name != "RBX_PROBE")


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] == other[name] for name in one.keys() & other.keys())
