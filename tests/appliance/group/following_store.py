"""Two stores of which one has a copy of the other's log, and the tables that go through it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from appliance.group.state.state_applier import StateApplier, StateFiles, open_files
from appliance.group.state.state_log import LeaderFiles, StateLog
from storage_driver.files.disk import RealDisk
from storage_driver.store import MessageStore, open_store
from tests.storage_driver.test_store import HOST, Clock, small


class Side(NamedTuple):
    """One member: its store, its files, what applies."""

    store: MessageStore
    files: StateFiles
    applier: StateApplier


class Lead(NamedTuple):
    """A leader's side, and what its tables are kept in."""

    side: Side
    state: StateLog
    tables: LeaderFiles


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Side]:
    async with open_store(small(folder), now_ms=Clock()) as store:
        files = open_files(store, RealDisk(), folder)
        yield Side(store, files, StateApplier(store, files))


def lead(side: Side) -> Lead:
    state = StateLog(side.store, HOST, now_ms=Clock())
    return Lead(side, state, LeaderFiles(side.files, state))


async def copy(source: MessageStore, target: MessageStore) -> None:
    """Bring a copy level, as the link does."""
    while target.end < source.committed:
        data = source.read_log(target.end, 1 << 20)
        target.append_raw(target.end, data)
    await target.wait_committed(target.end)
