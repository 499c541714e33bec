"""The tables of a leader: in the log when a write returns, and what becomes of it without a second disk."""

from pathlib import Path

import pytest
import trio

from appliance.group.state import state_log
from appliance.group.state.state_log import FollowerFiles, LeaderFiles, StateLog
from storage_driver.errors import LogFailed
from storage_driver.journal import Journal
from tests.appliance.group.following_store import lead, opened
from tests.storage_driver.test_store import HOST, Clock
from tests.waiting import until

GROUPS = {"subscriptionGroupTable": {"G": {"retryMaxTimes": 3}}}


async def test_a_write_returns_when_the_change_is_committed_and_a_second_one_costs_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        leader = lead(side)
        table = leader.tables.state_file("subscriptionGroup")
        assert table.load() is None
        await table.write(GROUPS)
        assert side.store.committed == side.store.end
        await table.write_bytes(b'{"subscriptionGroupTable":{"G":{"retryMaxTimes":3}}}')
        assert leader.state.following == 1
        await side.applier.apply()
        assert table.load() == GROUPS
        assert leader.tables.state_file("subscriptionGroup").load() == GROUPS


async def test_a_topic_that_is_safe_is_told_once_and_before_who_waits_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        told = list[int]()
        state = StateLog(side.store, HOST, now_ms=Clock(), on_committed=lambda: told.append(side.store.committed))
        files = LeaderFiles(side.files, state)
        await files.state_file("subscriptionGroup").write(GROUPS)
        assert told == [], "what clients ask of the leader alone costs no heartbeat to every member"
        table = files.state_file("topics")
        await table.write({"topicConfigTable": {"T": {}}})
        assert told == [side.store.end]
        await table.write({"topicConfigTable": {"T": {}}})
        assert len(told) == 1


async def test_without_the_second_disk_a_write_fails_after_a_while_and_its_repetition_appends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_log, "WAIT_S", 0.01)
    async with opened(tmp_path) as side:
        side.store.share(lambda log_offset: None)
        leader = lead(side)
        table = leader.tables.state_file("subscriptionGroup")
        for _ in range(2):
            with pytest.raises(OSError, match="not on the second disk after"):
                await table.write(GROUPS)
        assert leader.state.following == 1
        await until(lambda: side.store.synced == side.store.end)
        side.store.commit(side.store.end)
        await table.write(GROUPS)


async def test_a_change_that_was_refused_is_in_the_log_with_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(change: object) -> int:
        raise OSError("the disk is slow")

    async with opened(tmp_path) as side:
        leader = lead(side)
        table = leader.tables.state_file("subscriptionGroup")
        with monkeypatch.context() as patched:
            patched.setattr(leader.state, "append", refuse)
            with pytest.raises(OSError, match="slow"):
                await table.write(GROUPS)
        await table.write(GROUPS)
        assert leader.state.following == 1
        await side.applier.apply()
        assert table.load() == GROUPS


async def test_some_rows_are_written_by_themselves_once_the_log_has_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as side:
        leader = lead(side)
        table = leader.tables.state_file("subscriptionGroup")
        section = "subscriptionGroupTable"
        assert not await table.write_rows(section, {"G": {"retryMaxTimes": 3}}), "nobody knows what the log has"
        await table.write(GROUPS)
        assert await table.write_rows(section, {"G": {"retryMaxTimes": 3}, "H": None})
        assert leader.state.following == 1, "nothing is different"
        assert await table.write_rows(section, {"H": {"retryMaxTimes": 4}, "G": None})
        assert leader.state.following == 2
        await table.write({section: {"H": {"retryMaxTimes": 4}}})
        assert leader.state.following == 2, "the whole table has nothing new"
        await side.applier.apply()
        assert table.load() == {section: {"H": {"retryMaxTimes": 4}}}
        leader.state.end("b leads now")
        with pytest.raises(OSError, match="b leads now"):
            await table.write_rows(section, {"I": {}})
        assert not await table.write_rows(section, {}), "what was refused may be there in part"


async def test_a_sealed_log_is_an_error_of_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sealed(log_offset: int) -> None:
        raise LogFailed("a write failed")

    async with opened(tmp_path) as side:
        monkeypatch.setattr(side.store, "wait_committed", sealed)
        with pytest.raises(OSError, match="sealed after a disk error"):
            await lead(side).tables.state_file("subscriptionGroup").write(GROUPS)


async def test_who_leads_no_longer_tells_those_who_wait(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        side.store.share(lambda log_offset: None)
        leader = lead(side)
        table = leader.tables.state_file("subscriptionGroup")
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                with pytest.raises(OSError, match="b leads now"):
                    await table.write(GROUPS)

            nursery.start_soon(write)
            await until(lambda: leader.state.following == 1)
            leader.state.end("b leads now")
        with pytest.raises(OSError, match="b leads now"):
            await table.write({"subscriptionGroupTable": {}})


async def test_a_journal_goes_through_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        leader = lead(side)
        journal = Journal(leader.tables.journal_file("pop.journal"), lambda: [b"snapshot"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            await journal.wait_synced(journal.add(b"one"))
            await journal.wait_synced(journal.add(b"two"))
            nursery.cancel_scope.cancel()
        await side.applier.apply()
        assert side.applier.journal("rocketbox/pop.journal") == [b"snapshot", b"two"]
        assert leader.tables.journal_file("pop.journal").load().payloads == [b"snapshot", b"two"]


async def test_the_progress_of_timers_names_no_files_of_this_disk(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        table = lead(side).tables.state_file("timers", folder="rocketbox")
        await table.write({"layout": 1, "spilledTo": 9, "indexedTo": 9, "emittedMs": 5, "runs": [[1, 2, 3, 4]]})
        await side.applier.apply()
        assert table.load() == {"layout": 1, "spilledTo": 0, "indexedTo": 9, "emittedMs": 5, "runs": []}


async def test_a_follower_reads_its_tables_and_saves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as side:
        await lead(side).tables.state_file("subscriptionGroup").write(GROUPS)
        await side.applier.apply()
        table = FollowerFiles(side.files).state_file("subscriptionGroup")
        await table.write({})
        await table.write_bytes(b"{}")
        assert table.load() == GROUPS
