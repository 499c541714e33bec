"""The whole store against a model, a dict of lists: any sequence of sends, deletions, restarts and power cuts."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
import trio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from storage_driver.record import Message, MessageQueue, decode_record, encode_properties
from storage_driver.store import AppendResult, MessageStore, open_store
from storage_driver.testing import MemoryDisk
from tests.power_cut.harness import FOLDERS, HOST, config, deterministic, put_batch

TOPICS = ("A", "B", "C")
SIZES = (0, 10, 700, 6000)
ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 2), st.integers(0, 1), st.sampled_from(SIZES)),
    st.tuples(st.just("batch"), st.integers(0, 2), st.integers(0, 1), st.integers(1, 12)),
    st.tuples(st.just("put"), st.integers(0, 2), st.integers(0, 1), st.sampled_from(SIZES)),  # not waited for
    st.tuples(st.just("half"), st.integers(0, 2), st.integers(0, 1), st.sampled_from(SIZES)),  # gets no number
    st.tuples(st.sampled_from(("save", "drop", "restart", "cut", "cut", "wait")), *[st.just(0)] * 3),
    st.tuples(st.just("delete"), st.integers(0, 2), st.just(0), st.just(0)),
)
Action = tuple[str, int, int, int]


class Kept(NamedTuple):
    """What the model knows of one message."""

    number: int
    log_offset: int
    stored_ms: int
    key: str
    body: bytes


@dataclass
class Model:
    """What must be there, and what may be: sent, but nobody was told that it is durable."""

    queues: dict[MessageQueue, list[Kept]] = field(default_factory=dict)
    unsure: dict[MessageQueue, list[Kept]] = field(default_factory=dict)

    def add(self, queue: MessageQueue, kept: Kept, *, sure: bool) -> None:
        (self.queues if sure else self.unsure).setdefault(queue, []).append(kept)

    def settle(self) -> None:
        """A later message was acknowledged: all before it are durable."""
        for queue, some in self.unsure.items():
            self.queues[queue] = sorted(self.queues.get(queue, []) + some)
        self.unsure = {}

    def delete(self, topic: str) -> None:
        for table in (self.queues, self.unsure):
            for queue in [queue for queue in table if queue.topic == topic]:
                del table[queue]

    def drop(self, first: int) -> None:
        self.queues = {q: [m for m in some if m.log_offset >= first] for q, some in self.queues.items()}


class Play:
    """Plays actions against a real store on a disk in memory, and looks at it after each opening and at the end."""

    def __init__(self, actions: list[Action], seed: int) -> None:
        self._actions, self._pick, self._seed = actions, random.Random(seed), seed
        self._disk, self._model = MemoryDisk(folders=FOLDERS), Model()
        self._now_ms, self._count = 1_700_000_000_000, 0

    def _now(self) -> int:
        return self._now_ms

    def _new_id(self) -> int:
        return self._pick.randrange(1, 1 << 62)

    async def run(self) -> None:
        left = list(self._actions)
        while True:
            async with open_store(config(), now_ms=self._now, disk=self._disk, new_id=self._new_id) as store:
                await self._look(store)
                reopen = await self._play(store, left)
                if reopen is None:
                    await store.wait_committed(store.end)
                    self._model.settle()
                    await self._look(store)
                    return
                if reopen == "restart":
                    await store.wait_committed(store.end)
                    self._model.settle()
            if reopen == "cut":
                self._disk = self._disk.after_power_cut(self._pick)

    async def _play(self, store: MessageStore, left: list[Action]) -> str | None:
        while left:
            kind, topic, queue_id, size = left.pop(0)
            self._now_ms += 1000
            if kind in ("restart", "cut"):
                return kind
            if kind == "delete":
                await store.delete_topic(TOPICS[topic])
                self._model.delete(TOPICS[topic])
            elif kind == "drop":
                await store.drop_first()
                self._model.drop(store.first)
            elif kind == "save":
                await store.prove()
            elif kind == "wait":
                await trio.sleep(2)
            else:
                await self._put(store, kind, MessageQueue(TOPICS[topic], queue_id), size)
        return None

    async def _put(self, store: MessageStore, kind: str, queue: MessageQueue, size: int) -> None:
        messages, keys = [], []
        for _ in range(size if kind == "batch" else 1):
            self._count += 1
            keys.append(f"key{self._count}")
            body = b"%d " % self._count + self._pick.randbytes(100 if kind == "batch" else size)
            flag = 0x4 if kind == "half" else 0
            messages.append(
                Message(queue.topic, queue.queue_id, body, encode_properties({"UNIQ_KEY": keys[-1]}), 0, flag, 1, HOST)
            )
        placed: list[AppendResult] = put_batch(store, messages) if kind == "batch" else [store.put(messages[0])]
        if kind != "put":
            await store.wait_committed(placed[-1].end)
            self._model.settle()
        if kind != "half":
            for message, place, key in zip(messages, placed, keys, strict=True):
                self._model.add(queue, _kept(message, place, key), sure=kind != "put")

    async def _look(self, store: MessageStore) -> None:
        """Compare; afterwards the model knows which of the unsure messages are there."""
        model = self._model
        for queue in model.queues.keys() | model.unsure.keys():
            found = await _read(store, queue)
            must = {m.number: m for m in model.queues.get(queue, [])}
            may = {m.number: m for m in model.unsure.get(queue, [])} | must
            assert must.keys() <= found.keys(), f"{queue}: {sorted(must.keys() - found.keys())} are gone"
            assert all(number in may and may[number].body == body for number, body in found.items()), queue
            assert store.max_offset(queue) > max(found, default=-1)
            model.queues[queue] = [may[number] for number in sorted(found)]
        model.unsure = {}
        if some := [(queue, m) for queue, kept in model.queues.items() for m in kept]:
            queue, m = self._pick.choice(some)
            assert await store.offset_by_time(queue, m.stored_ms, boundary="lower") <= m.number
            record = await store.record_at(m.log_offset)
            assert record is not None
            assert decode_record(record).body == m.body
            await store.prove()
            assert [decode_record(r).body for r in await store.find_by_key(queue.topic, m.key, 9, 0, 1 << 62)] == [
                m.body
            ]


def _kept(message: Message, place: AppendResult, key: str) -> Kept:
    return Kept(place.queue_offset, place.log_offset, place.stored_ms, key, message.body)


async def _read(store: MessageStore, queue: MessageQueue) -> dict[int, bytes]:
    found, at = {}, store.min_offset(queue)
    while at < store.max_offset(queue):
        got = await store.read(queue, at, max_count=8, max_bytes=1 << 20)
        for chunk in got.chunks:
            i = 0
            while i < len(chunk):
                record = decode_record(chunk, i)
                found[record.queue_offset] = bytes(record.body)
                i += record.size
        assert got.next_offset > at
        at = got.next_offset
    return found


SEQUENCES = given(st.lists(ACTIONS, min_size=5, max_size=40), st.integers(0, 1 << 30))


def search(most: int) -> settings:
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@SEQUENCES
@example([("send", 0, 0, 0), ("put", 1, 0, 0), ("delete", 1, 0, 0), ("restart", 0, 0, 0), ("send", 1, 0, 0)], 0)
@search(25)
def test_any_sequence_of_actions_leaves_what_the_model_has(actions: list[Action], seed: int) -> None:
    deterministic(Play(actions, seed).run, seed)


@pytest.mark.soak
@SEQUENCES
@search(900)
def test_nine_hundred_new_sequences_leave_what_the_model_has(actions: list[Action], seed: int) -> None:
    deterministic(Play(actions, seed).run, seed)
