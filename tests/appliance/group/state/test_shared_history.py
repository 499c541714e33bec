"""One history of a group's log: each leader goes on with the runs and epochs of the one before."""

from pathlib import Path

import pytest
import trio

from appliance.group.state import shared_history
from appliance.group.state.shared_history import SharedHistory
from tests.appliance.group.following_store import Lead, copy, lead, opened
from tests.storage_driver.test_store import message, put_all
from tests.waiting import until_it


def history(leader: Lead, express: tuple[str, ...] = ()) -> SharedHistory:
    return SharedHistory(leader.side.store, leader.state, leader.side.files, express)


async def test_the_next_leader_has_the_runs_of_the_one_before_and_one_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as first, opened(tmp_path / "b") as second:
        await put_all(first.store, [message()])
        await history(lead(first)).take_over()
        await copy(first.store, second.store)
        await second.applier.apply()
        at = second.store.end
        assert second.store.lineage.runs != first.store.lineage.runs
        await history(lead(second)).take_over()
        before, after = first.store.lineage, second.store.lineage
        assert after.epochs == before.epochs
        assert after.runs[:-1] == before.runs
        assert after.runs[-1][1] == at
        await second.applier.apply()
        await copy(second.store, first.store)
        await first.applier.apply()
        await history(lead(first)).take_over()
        assert first.store.lineage.runs[:-1] == after.runs


async def test_the_next_leader_has_the_express_topics_of_the_one_before(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as first, opened(tmp_path / "b") as second:
        await put_all(first.store, [message()])
        at = first.store.end
        await history(lead(first), ("A",)).take_over()
        assert first.store.lineage.express == [(at, ("A",))]
        await copy(first.store, second.store)
        await second.applier.apply()
        end = second.store.end
        await history(lead(second), ("B",)).take_over()
        assert second.store.lineage.express == [(at, ("A",)), (end, ("B",))]


async def test_what_the_uplink_changes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_history, "LOOK_S", 0.01)
    async with opened(tmp_path / "a") as first:
        shared = history(lead(first))
        await shared.take_over()
        known = first.files.tables[shared_history.HISTORY]

        async def told() -> bool:
            await first.applier.apply()
            return bool(known.load()["landing"] == "ab")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(shared.run)
            first.store.lineage.land("ab")
            await until_it(told)
            nursery.cancel_scope.cancel()
