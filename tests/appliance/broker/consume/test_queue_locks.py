"""Locks of queues: who has them, for how long, how many."""

from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.consume import queue_locks
from appliance.broker.consume.queue_locks import EXPIRY_S, QueueLocks, SavedLocks
from appliance.testing import MemoryRowFile
from storage_driver.files.disk import RealDisk
from storage_driver.files.state_file import StateFile
from storage_driver.record import MessageQueue
from tests.waiting import until


def test_a_lock_nobody_renews_is_free_after_a_minute() -> None:
    now_s, queue = 0.0, MessageQueue("T", 0)
    locks = QueueLocks(lambda: now_s)
    assert locks.lock("g", "a", [queue]) == [queue]
    now_s = 60.0
    assert locks.lock("g", "b", [queue]) == []
    now_s = 60.1
    assert locks.lock("g", "b", [queue]) == [queue]
    now_s = 200.0
    locks.drop_expired()
    assert len(locks) == 0


def test_locks_have_an_end_and_those_that_are_there_are_kept() -> None:
    locks = QueueLocks(lambda: 0.0)
    queues = [MessageQueue("T", number) for number in range(100_001)]
    assert len(locks.lock("g", "c@1", queues)) == 100_000
    assert locks.lock("g", "c@1", queues[:3]) == queues[:3]
    assert locks.lock("g", "c@2", queues[:3]) == []


A, B = MessageQueue("T", 0), MessageQueue("T", 1)
asks = st.lists(
    st.tuples(
        st.sampled_from(["lock", "unlock", "drop"]), st.sampled_from("xyz"), st.sampled_from([A, B]), st.integers(0, 40)
    ),
    max_size=40,
)


@settings(max_examples=40)
@given(asks)
def test_at_no_time_do_two_clients_hold_a_queue(sequence: list[tuple[str, str, MessageQueue, int]]) -> None:
    now = [0.0]
    locks = QueueLocks(lambda: now[0])
    holders: dict[MessageQueue, tuple[str, float]] = {}
    for what, client, queue, seconds in sequence:
        now[0] += seconds
        if what == "lock":
            held = holders.get(queue)
            free = held is None or held[0] == client or now[0] - held[1] > EXPIRY_S
            assert locks.lock("g", client, [queue]) == ([queue] if free else [])
            if free:
                holders[queue] = (client, now[0])
        elif what == "unlock":
            locks.unlock("g", client, [queue])
            if holders.get(queue, ("", 0))[0] == client:
                del holders[queue]
        else:
            locks.drop_expired()
            holders = {q: held for q, held in holders.items() if now[0] - held[1] <= EXPIRY_S}
        assert {q: locks.owner("g", q) for q in (A, B)} == {q: holders[q][0] if q in holders else None for q in (A, B)}
        assert len(locks) == len(holders)


def test_groups_do_not_see_each_others_locks() -> None:
    locks = QueueLocks(lambda: 0.0)
    assert locks.lock("g", "x", [A, A]) == [A, A]
    assert locks.lock("h", "y", [A]) == [A]
    locks.unlock("g", "y", [A])
    assert (locks.owner("g", A), locks.owner("h", A)) == ("x", "y")


def test_at_the_limit_a_client_keeps_what_it_has_in_whatever_order_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "MOST_LOCKS", 1)
    now = [0.0]
    locks = QueueLocks(lambda: now[0])
    assert locks.lock("g", "x", [A]) == [A]
    now[0] = 50.0
    assert locks.lock("g", "x", [B, A]) == [A]
    now[0] = 100.0
    assert locks.lock("g", "y", [A]) == [], "the lock was renewed 50 seconds ago"


async def test_owners_are_saved_for_the_box_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "SAVE_S", 0.01)
    file = StateFile(RealDisk(), tmp_path / "queueLocks.json")
    locks, now = QueueLocks(lambda: 0.0), [500.0]
    saved = SavedLocks(locks, file)
    locks.lock("g", "x", [A, B])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saved.run)
        await until(lambda: (tmp_path / "queueLocks.json").exists())
        nursery.cancel_scope.cancel()
    after = QueueLocks(lambda: now[0])
    SavedLocks(after, file)
    assert after.lock("g", "y", [A]) == [], "it counts from now on"
    assert after.lock("g", "x", [A]) == [A]
    now[0] += EXPIRY_S + 1
    assert after.lock("g", "y", [B]) == [B]


async def test_a_lock_that_changes_hands_is_saved_before_it_is_told(tmp_path: Path) -> None:
    file = StateFile(RealDisk(), tmp_path / "queueLocks.json")
    locks = QueueLocks(lambda: 0.0)
    saved = SavedLocks(locks, file)
    assert saved.is_saved
    locks.lock("g", "x", [A])
    assert not saved.is_saved
    await saved.flush()
    assert saved.is_saved
    locks.lock("g", "x", [A])
    assert saved.is_saved, "renewed"
    locks.unlock("g", "x", [A])
    assert not saved.is_saved
    await saved.flush()
    after = QueueLocks(lambda: 0.0)
    assert SavedLocks(after, file).is_saved
    assert after.lock("g", "y", [A]) == [A]


async def test_a_lock_that_is_held_is_told_while_others_are_being_saved() -> None:
    file, locks = MemoryRowFile(), QueueLocks(lambda: 0.0)
    saved = SavedLocks(locks, file)
    locks.lock("g", "x", [A])
    assert not saved.has_saved("g", [A])
    await saved.flush()
    locks.lock("g", "y", [B])
    locks.lock("g", "x", [A])
    assert (saved.has_saved("g", [A]), saved.has_saved("g", [A, B]), saved.is_saved) == (True, False, False)
    await saved.flush()
    locks.unlock("g", "x", [A])
    assert not saved.has_saved("g", [A])
    await saved.flush()
    assert file.rows == [{'["g", "T", 1]': "y"}, {'["g", "T", 0]': None}]
    after = QueueLocks(lambda: 0.0)
    SavedLocks(after, file)
    assert after.owners() == [(("g", B), "y")]


async def test_more_locks_than_are_worth_it_are_written_as_one_table() -> None:
    file, locks = MemoryRowFile(), QueueLocks(lambda: 0.0)
    saved = SavedLocks(locks, file)
    await saved.flush()
    for group in ("g", "ü"):
        locks.lock(group, "x", [MessageQueue("T", number) for number in range(1001)])
        await saved.flush()
    assert (file.writes, file.rows) == (2, [])
    after = QueueLocks(lambda: 0.0)
    SavedLocks(after, file)
    assert sorted(after.owners()) == sorted(locks.owners())


def test_a_row_that_is_no_lock_is_passed_over() -> None:
    content = {"locks": {"[": "x", '["g"]': "x", '["g", "T", "?"]': "x", "7": "x", '["g", "T", 0]': "x"}}
    locks = QueueLocks(lambda: 0.0)
    SavedLocks(locks, MemoryRowFile(content))
    assert locks.owners() == [(("g", A), "x")]


async def test_who_waited_for_a_save_that_failed_does_not_wait_for_another_one() -> None:
    class FailingFile:
        def __init__(self) -> None:
            self.tries = 0

        def load(self) -> None:
            return None

        async def write(self, table: object) -> None:
            self.tries += 1
            await trio.testing.wait_all_tasks_blocked()
            raise OSError("the second disk is away")

        async def write_bytes(self, raw: bytes) -> None:
            await self.write(raw)

    file, locks = FailingFile(), QueueLocks(lambda: 0.0)
    saved = SavedLocks(locks, file)
    locks.lock("g", "x", [A])
    failed: list[str] = []

    async def flush() -> None:
        try:
            await saved.flush()
        except OSError as exc:
            failed.append(str(exc))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(flush)
    assert (file.tries, len(failed)) == (1, 5)
    assert not saved.is_saved


def test_one_address_leaves_as_many_locks_to_others_as_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "MOST_LOCKS", 100)
    monkeypatch.setattr(queue_locks, "ALWAYS_ALLOWED", 3)
    now_s, queues = 0.0, [MessageQueue("T", number) for number in range(200)]
    locks = QueueLocks(lambda: now_s)
    assert len(locks.lock("g", "greedy", queues, "10.0.0.1")) == 50
    assert len(locks.lock("g", "modest", queues[50:], "10.0.0.2")) == 25
    assert len(locks.lock("g", "greedy", queues, "10.0.0.1")) == 50, "it keeps what it has"
    assert len(locks.lock("h", "here", queues)) == 25, "this machine takes all"
    locks.unlock("h", "here", queues)
    locks.unlock("g", "modest", queues)
    assert len(locks.lock("h", "modest", queues, "10.0.0.2")) == 25
    now_s = 100.0
    assert len(locks.lock("g", "other", queues[:40], "10.0.0.3")) == 40, (
        "what nobody renews is counted for its next owner"
    )
    assert len(locks.lock("h", "greedy", queues[100:], "10.0.0.1")) == 7
    locks.drop_expired()
    assert len(locks) == 47
