"""Three boxes elect their leader while stock clients produce and consume: a hand-over, and the end of a leader."""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance import admin
from appliance.commands.device.handing_over import hand_over as hand_over_first
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import RealMember
from tests.interop.box import until
from tests.interop.client import Collected, producer, push_consumer, unique
from tests.interop.jvm import Jvm
from tests.interop.threads import threads_running

pytestmark = [pytest.mark.slow, needs_openssl]
SENDERS = 3
PAUSE_S = 0.005  # between two sends of one thread: other programs need the processor, too
SWITCHED_S = 60.0


class TimedSenders:
    """Threads that send; when each send was acknowledged, what failed, the longest pause of a thread."""

    def __init__(self, jvm: Jvm, client: Any, topic: str) -> None:
        self._jvm, self._client, self._topic = jvm, client, topic
        self._stop, self._lock = threading.Event(), threading.Lock()
        self.acknowledged: dict[bytes, float] = {}  # body → when
        self.failed: list[tuple[float, str]] = []

    def _run(self, sender: int) -> None:
        number = 0
        while not self._stop.wait(PAUSE_S):
            number += 1
            body = b"%d/%d" % (sender, number)
            try:
                acknowledged = self.send(body)
            except Exception as error:
                self.failed.append((time.monotonic(), str(error).splitlines()[0]))
            else:
                if acknowledged:
                    with self._lock:
                        self.acknowledged[body] = time.monotonic()

    def send(self, body: bytes) -> bool:
        """Send one message; return whether it was acknowledged."""
        result = self._client.send(self._jvm.message(self._topic, body))
        return bool(result.getSendStatus().toString() == "SEND_OK")

    def running(self) -> AbstractContextManager[None]:
        return threads_running([partial(self._run, sender) for sender in range(SENDERS)], self._stop)

    def more(self, number: int) -> None:
        """Return once so many further sends were acknowledged."""
        enough = len(self.acknowledged) + number
        until(lambda: len(self.acknowledged) >= enough, seconds=SWITCHED_S, what="producers did not come back")

    def since(self, began: float) -> tuple[float, int]:
        """Return the longest time without any acknowledgement since a moment, and how many sends failed."""
        with self._lock:
            times = sorted([began, *(at for at in self.acknowledged.values() if at >= began)])
        gaps = [after - before for before, after in pairwise(times)]
        return max(gaps, default=0.0), sum(at >= began for at, _ in self.failed)


@contextmanager
def three(folder: Path, timing: float = 0.5) -> Iterator[list[RealMember]]:
    """Run three boxes that elect their leader."""
    boxes = [RealMember(folder / name) for name in "abc"]
    for each in boxes:
        each.configure(boxes, elections="automatic", timing=timing)
    try:
        for each in boxes:
            each.start()
        yield boxes
    finally:
        for each in boxes:
            if each.running:
                each.kill()


def status(box: RealMember) -> dict[str, Any]:
    return trio.run(box.status)


def leader_of(boxes: list[RealMember]) -> RealMember:
    """Return the box that leads and takes messages, once there is one."""
    found: list[RealMember] = []

    def leads() -> bool:
        found[:] = [each for each in boxes if each.running and status(each).get("serves")]
        return len(found) == 1

    until(leads, seconds=SWITCHED_S, what="no box leads")
    return found[0]


def linked(boxes: list[RealMember]) -> RealMember:
    """Return the leader once all members are linked with it."""
    leader = leader_of(boxes)
    until(
        lambda: all(each["connected"] for each in status(leader)["members"]), seconds=60, what="members are not linked"
    )
    return leader


def hand_over(boxes: list[RealMember]) -> None:
    leader = linked(boxes)
    other = next(each for each in boxes if each is not leader)
    trio.run(lambda: leader.ask("group.transfer", to=other.name))


def check(collected: Collected, senders: TimedSenders) -> None:
    """Nothing acknowledged is missing; what a thread sent to a queue comes in its order."""
    wanted = senders.acknowledged.keys()
    seen = collected.wait(lambda seen: wanted <= {each.body for each in seen}, 120)
    assert wanted - {each.body for each in seen} == set()
    newest: dict[tuple[int, bytes], int] = {}
    first: set[bytes] = set()
    for each in sorted(seen, key=lambda each: (each.queue_id, each.queue_offset)):
        if each.body in first or each.body not in wanted:
            continue  # it may come twice, or be stored although its sender was told nothing
        first.add(each.body)
        sender, number = each.body.split(b"/")
        assert newest.get((each.queue_id, sender), 0) < int(number), "stored out of order"
        newest[each.queue_id, sender] = int(number)


@pytest.mark.feature("a group of boxes: unmodified clients go on through a hand-over and the end of a leader")
def test_stock_clients_go_on_through_a_hand_over_and_the_end_of_a_leader(jvm4: Jvm, tmp_path: Path) -> None:
    topic = unique("group")
    with three(tmp_path) as boxes:
        namesrv = ";".join(each.namesrv for each in boxes)
        leader_of(boxes)
        with producer(jvm4, namesrv, SendMsgTimeout=3_000) as client:
            client.send(jvm4.message(topic, b"9/1"))
            senders = TimedSenders(jvm4, client, topic)
            with push_consumer(jvm4, namesrv, topic, ConsumeThreadMin=1, ConsumeThreadMax=1) as collected:
                with senders.running():
                    senders.more(50)
                    began = time.monotonic()
                    hand_over(boxes)
                    senders.more(50)
                    assert senders.since(began)[1] <= SENDERS, "more than what was under way when its connection ended"
                    leader_of(boxes).kill()
                    senders.more(50)
                check(collected, senders)


@pytest.mark.soak
def test_no_send_of_a_stock_producer_fails_at_a_hand_over(jvm: Jvm, tmp_path: Path) -> None:
    topic, rounds = unique("group"), list[tuple[float, int]]()
    with three(tmp_path, timing=1.0) as boxes:
        namesrv = ";".join(each.namesrv for each in boxes)
        leader_of(boxes)
        with producer(jvm, namesrv, SendMsgTimeout=3_000, PollNameServerInterval=30_000) as client:
            client.send(jvm.message(topic, b"9/1"))
            senders = TimedSenders(jvm, client, topic)
            with push_consumer(jvm, namesrv, topic, ConsumeThreadMin=1, ConsumeThreadMax=1) as collected:
                with senders.running():
                    senders.more(100)
                    for _ in range(7):
                        began = time.monotonic()
                        hand_over(boxes)
                        senders.more(100)
                        rounds.append(senders.since(began))
                check(collected, senders)
    print(f"pauses: median {statistics.median(pause for pause, _ in rounds):.2f} s, {rounds}")
    print(f"{len(senders.acknowledged)} acknowledged; failed: {[text for _, text in senders.failed][:20]}")
    assert not senders.failed


@pytest.mark.soak
def test_no_send_fails_while_one_box_after_the_other_is_updated(jvm4: Jvm, tmp_path: Path) -> None:
    topic = unique("group")
    with three(tmp_path, timing=1.0) as boxes:
        namesrv = ";".join(each.namesrv for each in boxes)
        leader = leader_of(boxes)
        with producer(jvm4, namesrv, SendMsgTimeout=3_000, PollNameServerInterval=30_000) as client:
            client.send(jvm4.message(topic, b"9/1"))
            senders = TimedSenders(jvm4, client, topic)
            with push_consumer(jvm4, namesrv, topic, ConsumeThreadMin=1, ConsumeThreadMax=1) as collected:
                began = time.monotonic()
                with senders.running():
                    senders.more(100)
                    for each in [*(box for box in boxes if box is not leader), leader]:
                        linked(boxes)
                        print(*hand_over_first(each.data / "run" / admin.NAME))
                        assert each.stop() == 0
                        each.start()
                        senders.more(100)
                check(collected, senders)
    print(f"longest pause and failed sends: {senders.since(began)}; {[text for _, text in senders.failed][:20]}")
    assert not senders.failed


@pytest.mark.soak
@pytest.mark.parametrize("poll_ms", [30_000], ids=["the client as it is"])
def test_pauses_of_a_stock_producer(jvm4: Jvm, tmp_path: Path, poll_ms: int) -> None:
    """Prints the figures of docs/group.md."""
    topic, planned, killed = unique("group"), list[tuple[float, int]](), list[tuple[float, int]]()
    with three(tmp_path, timing=1.0) as boxes:
        namesrv = ";".join(each.namesrv for each in boxes)
        leader_of(boxes)
        settings: dict[str, Any] = {"SendMsgTimeout": 3_000, "PollNameServerInterval": poll_ms}
        with producer(jvm4, namesrv, **settings) as client:
            client.send(jvm4.message(topic, b"9/1"))
            senders = TimedSenders(jvm4, client, topic)
            consumer: dict[str, Any] = {"PollNameServerInterval": poll_ms, "ConsumeThreadMin": 1, "ConsumeThreadMax": 1}
            with push_consumer(jvm4, namesrv, topic, **consumer) as collected:
                with senders.running():
                    senders.more(100)
                    for _ in range(7):
                        began = time.monotonic()
                        hand_over(boxes)
                        senders.more(100)
                        planned.append(senders.since(began))
                    for _ in range(5):
                        began, leader = time.monotonic(), leader_of(boxes)
                        leader.kill()
                        senders.more(100)
                        killed.append(senders.since(began))
                        leader.start()
                        senders.more(100)
                check(collected, senders)
    for what, rounds in (("hand-over", planned), ("kill -9", killed)):
        pauses = [pause for pause, _ in rounds]
        print(f"{what}: median {statistics.median(pauses):.2f} s, longest {max(pauses):.2f} s, {rounds}")
    print(f"{len(senders.acknowledged)} acknowledged; failed: {[text for _, text in senders.failed][:20]}")
