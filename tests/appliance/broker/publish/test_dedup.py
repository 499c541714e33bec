"""The dedup window: which second send is a retry, and that it gets the first result, also after a restart."""

import errno
from pathlib import Path

import pytest
import trio.testing

from appliance.broker.assembly import assemble
from appliance.broker.broker_tables import make_tables
from appliance.broker.publish.dedup import DedupRules, DedupWindow, FirstCopy, key_of
from appliance.broker.tables.arrivals import Arrivals
from appliance.configuration.config import load_config
from appliance.requests import Handle
from appliance.testing import FakePeer, answered
from netstack.errors import Refused
from netstack.wire.command import ONEWAY, RemotingCommand
from storage_driver.log.clock import wall_ms
from storage_driver.record import MessageQueue, decode_record
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import DiskStep, MemoryDisk
from tests.appliance.box import FACTS, ask, connected, running_box, send
from tests.appliance.broker.publish.test_send import batch, properties
from tests.power_cut.harness import FOLDERS, config

KEYED = properties(UNIQ_KEY="K1", TAGS="A")


class Window:
    """A window whose clock, durable mark and connections the test owns."""

    def __init__(self, rules: DedupRules | None = None) -> None:
        self.now_s, self.durable, self.alive = 1000.0, 0, {1}
        self.answered: dict[str, int] = {}  # of topics with a policy of their own
        self.window = DedupWindow(
            rules or DedupRules(),
            now_s=lambda: self.now_s,
            durable=lambda: self.durable,
            answered=lambda topic: self.answered.get(topic, self.durable),
            connected=lambda peer: peer.id in self.alive,
        )

    def find(self, key: int, topic: str, peer: int = 2) -> FirstCopy | None:
        return self.window.find(key, topic, FakePeer(peer))

    def sent(self, end: int = 100, peer: int = 1) -> FirstCopy:
        return FirstCopy(0, 5, end - 90, end, FakePeer(peer), self.now_s)


def test_a_send_is_a_retry_while_the_first_reply_is_out_or_its_connection_is_dead() -> None:
    box = Window()
    box.window.remember(7, box.sent())
    assert box.find(7, "T") is not None  # not durable: no reply yet
    box.durable = 100
    assert box.find(7, "T") is None  # answered: a reused message object
    box.alive = set()
    assert box.find(7, "T") is not None  # the reply may be lost
    assert (box.find(8, "T"), box.window.hits) == (None, 2)


def test_a_key_is_no_repeat_for_ever_where_the_mark_of_its_topic_lags() -> None:
    box = Window()
    box.window.remember(7, box.sent())
    box.durable, box.answered = 100, {"both": 0}  # since the first was answered its topic wants two disks, one is away
    box.now_s += 29
    assert box.find(7, "both") is not None
    box.now_s += 2
    assert box.find(7, "both") is None


def test_what_no_disk_but_one_has_is_a_repeat_however_late_it_comes_again() -> None:
    box = Window()
    box.window.remember(7, box.sent())
    box.now_s += 600  # the second disk was away; nobody was answered
    assert box.find(7, "T") is not None
    box.durable = 100
    assert box.find(7, "T") is None


def test_the_policy_of_a_topic_tells_whether_its_sender_was_answered() -> None:
    box = Window()
    sent = box.sent()
    assert sent.peer is not None
    box.window.remember(7, sent)
    box.durable, box.answered = 100, {"both": 99, "one": 100}
    box.now_s += 3.0
    assert box.window.find(7, "both", sent.peer) is not None, "no other disk has it: its sender comes again after 3 s"
    assert box.window.find(7, "one", sent.peer) is None
    box.durable, box.answered["both"] = 0, 100
    assert box.window.find(7, "both", sent.peer) is None
    assert box.window.find(7, "one", sent.peer) is None, "one disk was enough: a new message with an old key"


def test_a_key_that_each_send_has_of_its_own_is_a_retry_whoever_was_answered() -> None:
    box = Window()
    box.window.remember(7, box.sent())
    box.durable, box.alive = 100, {1, 2}
    for peer in (1, 2):
        assert box.window.retried(7, "T", FakePeer(peer), own_key=True) is not None
    assert box.window.retried(7, "T", FakePeer(2)) is None
    box.now_s += 31
    assert box.window.retried(7, "T", FakePeer(1), own_key=True) is None


def test_what_the_log_took_back_is_forgotten_and_what_it_kept_is_not() -> None:
    box = Window()
    box.durable, box.alive = 100, set()
    box.window.remember(7, box.sent(end=100))  # waited together with the next one, of which the disk had no room
    box.window.remember(8, box.sent(end=200))
    box.window.forget(7, 100)
    box.window.forget(8, 200)
    box.durable = 300
    assert (box.find(7, "T") is not None, box.find(8, "T")) == (True, None)


def test_who_lost_its_connection_long_ago_sends_a_new_message() -> None:
    box = Window()
    box.window.remember(7, box.sent())
    box.durable, box.alive = 100, set()
    box.now_s += 29
    assert box.find(7, "T") is not None
    box.now_s += 2  # whoever waited for that answer has given up: a reused message object
    assert box.find(7, "T") is None


def test_one_object_sent_twice_without_waiting_is_two_messages_and_a_retry_after_a_timeout_is_one() -> None:
    box = Window()
    first = box.sent()
    assert first.peer is not None
    box.window.remember(7, first)
    box.now_s += 0.4
    assert box.window.find(7, "T", first.peer) is None
    assert box.find(7, "T", peer=3) is not None  # over another connection nobody sends so soon by plan
    box.now_s += 0.1
    assert box.window.find(7, "T", first.peer) is not None


def test_a_topic_can_have_a_wider_window() -> None:
    box = Window(DedupRules(topics=frozenset({"T"}), topics_s=60))
    box.window.remember(7, box.sent())
    box.durable = 100
    assert (box.find(7, "other"), box.find(7, "T") is not None) == (None, True)
    box.now_s += 61
    assert box.find(7, "T") is None


def test_what_is_remembered_is_bounded_by_count_and_age() -> None:
    box = Window(DedupRules(entries=100))
    for key in range(1000):
        box.window.remember(key, box.sent())
    assert len(box.window) <= 100
    assert box.find(999, "T") is not None
    assert box.find(0, "T") is None
    box.now_s += 31
    box.window.remember(1000, box.sent())
    box.now_s += 31
    box.window.remember(1001, box.sent())
    assert box.find(999, "T") is None


def test_another_body_topic_or_address_is_another_message() -> None:
    keys = {
        key_of(b"\x7f\0\0\1", "T", "K", 1),
        key_of(b"\x7f\0\0\2", "T", "K", 1),
        key_of(b"\x7f\0\0\1", "U", "K", 1),
        key_of(b"\x7f\0\0\1", "T", "L", 1),
        key_of(b"\x7f\0\0\1", "T", "K", 2),
    }
    assert len(keys) == 5


async def length(channel: object, topic: str = "T") -> int:
    answer: RemotingCommand = await channel.ask(ask(30, topic=topic, queueId=0))  # type: ignore[attr-defined]
    return int(answer.ext["offset"])


async def test_a_retry_over_a_new_connection_gets_the_first_result(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as other:
        async with connected(box) as first:
            one = await first.ask(send("T", b"x", KEYED))
        await trio.testing.wait_all_tasks_blocked()  # the box has seen the connection end
        two = await other.ask(send("T", b"x", KEYED))
        assert (one.ext["msgId"], one.ext["queueOffset"]) == (two.ext["msgId"], two.ext["queueOffset"])
        assert (await other.ask(send("T", b"x", KEYED))).ext["queueOffset"] == "1"  # answered before: stored anew
        assert await length(other) == 2


async def test_one_object_sent_twice_at_once_is_stored_twice_also_one_way(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(channel.ask, send("T", b"x", KEYED))
        assert await length(channel) == 2
        for _ in range(2):
            oneway = send("U", b"x", KEYED)
            oneway.flag |= ONEWAY
            assert channel.tell(oneway)
        await channel.ask(send("T", b"y", KEYED))
        assert await length(channel, "U") == 2


async def test_a_retry_of_what_the_log_took_back_is_stored_and_not_answered_with_another_ones_place() -> None:
    disk, room = MemoryDisk(folders=FOLDERS), True

    def before(step: DiskStep) -> None:
        if not room and step.kind in ("resize", "name"):
            raise OSError(errno.ENOSPC, "injected")

    async with open_store(config(), now_ms=wall_ms, disk=disk) as store:
        handle = _send_handler(store)
        await answered(handle(send("T", b"x" * 4000), FakePeer()))
        disk.before, room, number, code = before, False, 0, 0
        while code == 0:
            number += 1
            lost, peer = send("T", b"x" * 4000, properties(UNIQ_KEY=f"L{number}")), FakePeer()
            try:
                code = (await answered(handle(lost, peer))).code
            except Refused:  # the next segment was asked for, and refused, before this message came: once more
                room = True
                await store.check_space()
                room = False
        room = True
        await store.check_space()
        for other in range(3):
            answer = await answered(handle(send("T", b"y" * 4000, properties(UNIQ_KEY=f"O{other}")), FakePeer()))
            assert answer.code == 0
        peer.close()
        again = await answered(handle(lost, FakePeer(2)))
        queue_offset = int(again.ext["queueOffset"])
        found = await store.read(MessageQueue("T", 0), queue_offset, max_count=1, max_bytes=9000)
        assert (code, again.code) == (14, 0)
        assert decode_record(found.chunks[0]).property_map["UNIQ_KEY"] == f"L{number}"


def _send_handler(store: MessageStore) -> Handle:
    settings = load_config("", source="test", facts=FACTS)
    tables = make_tables(settings, store, Arrivals(10, store.max_offset), now_ms=wall_ms)
    return assemble(settings, store, tables, "127.0.0.1:1", now_ms=wall_ms).handlers[310]


async def test_a_retry_after_a_restart_gets_the_first_result_and_a_new_message_is_stored(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        one = await channel.ask(send("T", b"x", KEYED))
        many = await channel.ask(batch((b"1", b"UNIQ_KEY\x01B1"), (b"2", b"UNIQ_KEY\x01B2"), queue_id=1))
    async with running_box(tmp_path) as box, connected(box) as channel:
        again = await channel.ask(send("T", b"x", KEYED))
        batch_again = await channel.ask(batch((b"1", b"UNIQ_KEY\x01B1"), (b"2", b"UNIQ_KEY\x01B2"), queue_id=1))
        assert again.ext["queueOffset"] == one.ext["queueOffset"]
        assert again.ext["msgId"][16:] == one.ext["msgId"][16:]  # the port in front of it is another one here
        assert batch_again.ext["queueOffset"] == many.ext["queueOffset"]
        assert (await channel.ask(send("T", b"y", properties(UNIQ_KEY="K2")))).ext["queueOffset"] == "1"


async def test_a_batch_that_begins_with_a_message_stored_before_is_no_retry(tmp_path: Path) -> None:
    async with running_box(tmp_path, "[broker]\ndedup_s = 60\n") as box, connected(box) as channel:
        first, second, third = (b"1", b"UNIQ_KEY\x01B1"), (b"2", b"UNIQ_KEY\x01B2"), (b"3", b"UNIQ_KEY\x01B3")
        many = await channel.ask(batch(first, second))
        again = await channel.ask(batch(first, second))
        other = await channel.ask(batch(first, third))
        assert (many.ext["queueOffset"], again.ext["queueOffset"], other.ext["queueOffset"]) == ("0", "0", "2")


async def test_the_places_of_a_huge_batch_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.broker.publish.send_batch.LONG", 1)
    async with running_box(tmp_path, "[broker]\ndedup_s = 60\n") as box, connected(box) as channel:
        first, second = (b"1", b"UNIQ_KEY\x01B1"), (b"2", b"UNIQ_KEY\x01B2")
        answers = [await channel.ask(batch(first, second)) for _ in range(2)]
        assert [answer.ext["queueOffset"] for answer in answers] == ["0", "2"]


async def test_without_entries_nothing_is_remembered(tmp_path: Path) -> None:
    async with running_box(tmp_path, "[broker]\ndedup_entries = 0\n") as box, connected(box) as channel:
        await channel.ask(send("T", b"x", KEYED))
        await channel.ask(send("T", b"x", KEYED))
        assert await length(channel) == 2
