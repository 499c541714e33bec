"""The restart position: when it moves, what it leaves on the disk, and that a start may distrust it."""

import trio

from storage_driver.files.checkpoint import CheckpointValues, CommittedFile, PositionFile
from storage_driver.index.index_file import Index, IndexSize
from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.record import MessageQueue
from storage_driver.restart_position import ENDS_EVERY_S, INDEX_BEHIND, RestartPosition
from storage_driver.testing import MemoryDisk
from tests.power_cut.harness import FOLDERS, config

BOOT = bytes(range(16))
KEY = MessageQueue("T", 0)
SETTINGS = config(position_every_bytes=1000, position_every_s=30.0)


def made(disk: MemoryDisk, *queues: MessageQueue, trust_queues_above: int = 100) -> RestartPosition:
    settings = SETTINGS._replace(trust_queues_above=trust_queues_above)
    index = Index(disk, settings.root, IndexSize())
    position = RestartPosition(settings, disk, {key: ConsumeQueue(key, b"T") for key in queues}, index)
    position.begin(CheckpointValues(5000, 5000, 1, 77, BOOT))
    position.start(100.0)
    return position


def on_disk(disk: MemoryDisk) -> CheckpointValues | None:
    return PositionFile(disk, SETTINGS.root / "rocketbox" / "position").load()


def test_the_position_moves_after_so_many_bytes_or_seconds_and_the_index_less_often() -> None:
    position = made(MemoryDisk(folders=FOLDERS))
    assert [position.due(at, 101.0) for at in (5000, 6000, 6001)] == [False, False, True]
    assert [position.due(at, 131.0) for at in (5000, 5001)] == [False, True]
    assert [position.index_due(at, 101.0) for at in (5000 + INDEX_BEHIND * 1000, 5001 + INDEX_BEHIND * 1000)] == [
        False,
        True,
    ]
    position.saved(position.values._replace(queues_to=6001), 131.0, with_index=False)
    assert (position.due(6002, 132.0), position.index_due(5001, 132.0)) == (False, True)
    position.saved(position.values, 132.0, with_index=True)
    assert not position.index_due(5001, 133.0)


def test_what_was_saved_is_read_again_and_a_distrusted_one_belongs_to_no_boot() -> None:
    disk = MemoryDisk(folders=FOLDERS)
    position = made(disk)
    assert on_disk(disk) == CheckpointValues(5000, 5000, 1, 77, BOOT)
    position.committed_file = CommittedFile(disk, SETTINGS.root / "rocketbox" / "committed")
    values = CheckpointValues(7000, 6000, 2, 78, BOOT)
    position.save(values)
    position.saved(values, 101.0, with_index=True)
    assert on_disk(disk) == values
    assert CommittedFile(disk, SETTINGS.root / "rocketbox" / "committed").load() == 7000
    position.distrust()
    assert on_disk(disk) == values._replace(boot=bytes(16))
    position.save_again()
    assert on_disk(disk) == values


async def test_the_table_of_queues_is_old_after_a_minute_or_with_another_number_of_queues() -> None:
    for many in (False, True):
        position = made(MemoryDisk(folders=FOLDERS), KEY, trust_queues_above=0 if many else 100)
        assert position.ends_due(5000, trio.current_time()), "not saved yet by this process"
        await position.save_ends(5000, trio.CapacityLimiter(1))
        now = trio.current_time()
        assert not position.ends_due(5000, now)
        assert position.ends_due(5001, now) is not many, "a large table is saved when the log has moved far"
        assert position.ends_due(6001, now)
        assert position.ends_due(5000, now + ENDS_EVERY_S + 1)
        position.forget_ends()
        assert position.ends_due(5000, now)
