"""The box dies many times while producers run, the gateway too: nothing acknowledged is missing anywhere."""

import os
import random
import threading
from collections import Counter
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.interop.box import Box, Gateway, until
from tests.interop.client import Collected, producer, push_consumer, unique
from tests.interop.jvm import Jvm
from tests.interop.threads import threads_running

pytestmark = pytest.mark.slow

SENDERS = 3
QUICK_UPLINK = "[uplink]\nmax_delay_s = 0.2\n"


class Senders:
    """Threads that send without pause; what was acknowledged, and how often a send failed."""

    def __init__(self, jvm: Jvm, client: Any, topic: str) -> None:
        self._jvm, self._client, self._topic = jvm, client, topic
        self._stop, self._lock = threading.Event(), threading.Lock()
        self.acknowledged: dict[str, bytes] = {}  # body by message id
        self.failed = 0

    def _run(self, sender: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            body = f"{sender}/{number}".encode() * 20
            try:
                result = self._client.send(self._jvm.message(self._topic, body, keys=f"{sender}-{number}"))
            except Exception:  # a dead box fails in many ways; only what was acknowledged counts
                self.failed += 1
                self._stop.wait(0.05)
            else:
                if result.getSendStatus().toString() == "SEND_OK":
                    with self._lock:
                        self.acknowledged[result.getMsgId()] = body

    def running(self) -> AbstractContextManager[None]:
        return threads_running([partial(self._run, sender) for sender in range(SENDERS)], self._stop)

    def wait_for_more(self, number: int) -> None:
        """Return once so many further sends were acknowledged: the box is back for its clients."""
        enough = len(self.acknowledged) + number
        until(lambda: len(self.acknowledged) >= enough, seconds=60, what="producers did not come back after a restart")


def rows_in_spark(spark: Any, landing: Path, topic: str) -> list[Any]:
    from uplink_spark import spark_source

    rows = spark_source.read(spark, str(landing), topics=[topic])
    return list(rows.select("box", "epoch", "log_offset", "queue_id", "queue_offset", "msg_id", "body").collect())


def kill_and_restart(box: Box, gateway: Gateway, senders: Senders, chance: random.Random, kills: int) -> None:
    """Kill the box so often at random moments, and the gateway before, between or after."""
    for kill in range(kills):
        senders.wait_for_more(20)
        threading.Event().wait(chance.uniform(0, 0.8))
        if kill % 3 == 1:
            gateway.kill()
        box.kill()
        if kill % 3 == 2:
            gateway.kill()
        box.start()
        if not gateway.running:
            gateway.start()
        print(f"kill {kill}: {len(senders.acknowledged)} acknowledged, {box.ready_line.split('recovered=')[1]}")
    senders.wait_for_more(20)


@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.soak)])
def test_kills_lose_nothing_acknowledged_and_rows_in_spark_are_exactly_once(
    jvm4: Jvm, spark: Any, tmp_path: Path, kills: int
) -> None:
    seed = int(os.environ.get("INTEROP_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"INTEROP_SEED={seed}")
    gateway = Gateway(tmp_path / "landing")
    box = Box(tmp_path / "data", uplink=gateway.address, config=QUICK_UPLINK)
    gateway.start()
    box.start()
    topic = unique("kills")
    try:
        with producer(jvm4, box.namesrv, SendMsgTimeout=5_000) as client:
            client.send(jvm4.message(topic, b"first"))
            senders = Senders(jvm4, client, topic)
            with push_consumer(jvm4, box.namesrv, topic) as collected:
                with senders.running():
                    kill_and_restart(box, gateway, senders, random.Random(seed), kills)
                check_consumer(collected, senders)
        check_spark(spark, gateway, topic, senders, collected)
    finally:
        for child in (box, gateway):
            if child.running:
                assert child.stop() == 0, child.log_tail()


def check_consumer(collected: Collected, senders: Senders) -> None:
    wanted = senders.acknowledged
    collected.wait(lambda seen: wanted.keys() <= {each.properties["UNIQ_KEY"] for each in seen}, 60)
    got = {each.properties["UNIQ_KEY"]: each.body for each in collected.seen}
    assert wanted.keys() - got.keys() == set()
    assert {key: got[key] for key in wanted} == wanted


def check_spark(spark: Any, gateway: Gateway, topic: str, senders: Senders, collected: Collected) -> None:
    places = {(each.queue_id, each.queue_offset) for each in collected.seen}
    rows: list[Any] = []

    def landed() -> bool:
        rows[:] = rows_in_spark(spark, gateway.landing, topic)
        return {(row.queue_id, row.queue_offset) for row in rows} >= places

    until(landed, seconds=60, what="not all that the consumer saw has landed")
    assert senders.acknowledged.keys() - {row.msg_id for row in rows} == set()
    assert {row.msg_id: bytes(row.body) for row in rows if row.msg_id in senders.acknowledged} == senders.acknowledged
    twice = [key for key, count in Counter((row.box, row.epoch, row.log_offset) for row in rows).items() if count > 1]
    assert twice == []
    assert Counter((row.queue_id, row.queue_offset) for row in rows) == Counter(places)
    repeated = len(rows) - len({row.msg_id for row in rows})
    print(f"{len(senders.acknowledged)} acknowledged, {senders.failed} failed, {len(rows)} rows, {repeated} sent again")
