"""What was taken back from a log is known at later starts."""

from pathlib import Path

from storage_driver.log.cut_history import MOST_CUTS, CutDone, CutHistory
from storage_driver.testing import MemoryDisk

ROOT = Path("/store")


def test_cuts_are_kept_once_each_the_newest_ones() -> None:
    disk = MemoryDisk(folders=("/", "/store", "/store/rocketbox"))
    history = CutHistory(disk, ROOT)
    assert history.load() == []
    cuts = [CutDone(number, number + 5, "why", [f"log-{number}"], 77, 2) for number in range(MOST_CUTS + 3)]
    for cut in (*cuts, cuts[-1]):
        history.note(cut)
    assert CutHistory(disk, ROOT).load() == cuts[3:]


def test_a_damaged_file_tells_of_nothing() -> None:
    disk = MemoryDisk(folders=("/", "/store", "/store/rocketbox"))
    disk.open(ROOT / "rocketbox" / "cuts.json", create=True).write([b'{"cuts": [{"end"'], 0)
    assert CutHistory(disk, ROOT).load() == []


def test_what_took_messages_is_new_until_somebody_acknowledges_it() -> None:
    history = CutHistory(MemoryDisk(folders=("/", "/store", "/store/rocketbox")), ROOT)
    first, empty, second = (
        CutDone(0, 5, "why", [], 77, 2),
        CutDone(5, 9, "why", [], 78, 0),
        CutDone(9, 10, "", [], 79, 1),
    )
    for cut in (first, empty):
        history.note(cut)
    assert history.unacknowledged() == [first]
    history.acknowledge([first])
    history.note(second)
    earlier = CutDone(20, 22, "a clock that was ahead is right again", [], 5, 1)
    history.note(earlier)
    assert history.unacknowledged() == [second, earlier]
    history.acknowledge([second])
    assert history.unacknowledged() == [earlier], "what nobody was shown"
