"""The tables of a broker whose files are not in its store."""

from pathlib import Path

from appliance.broker.broker_tables import make_tables, rebuild_dedup
from appliance.configuration.config import load_config
from appliance.testing import small_store, wall_ms
from storage_driver.files.disk import RealDisk
from storage_driver.files.journal_file import JournalFile
from storage_driver.files.state_file import StateFile
from storage_driver.record import Message
from tests.appliance.box import FACTS
from tests.bad_disk import BadDisk
from tests.storage_driver.test_store import HOST


class Elsewhere:
    """Files in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def state_file(self, name: str, *, folder: str = "config") -> StateFile:
        return StateFile(RealDisk(), self._folder / folder / f"{name}.json")

    def journal_file(self, name: str) -> JournalFile:
        return JournalFile(RealDisk(), self._folder / name)


async def test_topics_that_the_log_has_since_and_the_files_do_not_are_made_again(tmp_path: Path) -> None:
    config = load_config("[box]\nname = 'box'\n", source="test", facts=FACTS)
    async with small_store(tmp_path / "box") as small:
        files = Elsewhere(tmp_path)
        tables = make_tables(config, small.store, small.arrivals, files=files, now_ms=wall_ms)
        await tables.topics.flush()
        for topic in ("Later", "RBX_STATE"):
            placed = small.store.put(Message(topic, 2, b"x", b"", 0, 0, 1, HOST))
        await small.store.wait_committed(placed.end)
        again = make_tables(config, small.store, small.arrivals, files=files, now_ms=wall_ms)
        found = again.topics.get("Later")
        assert found is not None
        assert found.read_queues == 4
        assert again.topics.get("RBX_STATE") is None


async def test_a_bad_sector_among_the_newest_messages_keeps_no_box_from_serving(tmp_path: Path) -> None:
    config, disk = load_config("[box]\nname = 'box'\n", source="test", facts=FACTS), BadDisk()
    async with small_store(tmp_path, disk=disk) as small:
        placed = small.store.put(Message("T", 0, b"x", b"UNIQ_KEY\x01K", 0, 0, 1, HOST))
        await small.store.wait_committed(placed.end)
        tables = make_tables(config, small.store, small.arrivals, now_ms=wall_ms)
        disk.bad[f"commitlog/{0:020d}"] = [(0, 1)]
        await rebuild_dedup(tables, small.store, now_ms=wall_ms)
        assert len(tables.dedup) == 0
        disk.bad.clear()
        await rebuild_dedup(tables, small.store, now_ms=wall_ms)
        assert len(tables.dedup) == 1


async def test_after_a_clock_was_set_back_an_old_message_is_no_first_copy_of_a_new_one(tmp_path: Path) -> None:
    config = load_config("[box]\nname = 'box'\n", source="test", facts=FACTS)
    async with small_store(tmp_path) as small:
        placed = small.store.put(Message("T", 0, b"x", b"UNIQ_KEY\x01K", 0, 0, 1, HOST))
        await small.store.wait_committed(placed.end)
        tables = make_tables(config, small.store, small.arrivals, now_ms=wall_ms)
        await rebuild_dedup(tables, small.store, now_ms=lambda: 60_000)  # 1970: how old is it?
        assert len(tables.dedup) == 0
        await rebuild_dedup(tables, small.store, now_ms=lambda: wall_ms() - 10_000)
        assert len(tables.dedup) == 1
