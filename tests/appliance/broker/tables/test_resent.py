"""Which dead letters went back to their group, over restarts and beyond the life of their topic."""

from appliance.broker.tables.resent import MOST, Resent
from appliance.testing import MemoryStateFile

DEAD = "%DLQ%billing"


async def test_what_went_back_is_known_after_a_restart() -> None:
    file = MemoryStateFile()
    before = Resent(file)
    for offset in (7, 3, 3):
        before.note(DEAD, 0, offset)
    before.note("orders", 0, 1)
    await before.flush()
    after = Resent(file)
    assert (after.among(DEAD, 0, 0, 10), after.among(DEAD, 1, 0, 10), after.among("orders", 0, 0, 10)) == (2, 0, 0)


async def test_what_was_read_or_deleted_meanwhile_is_forgotten() -> None:
    file = MemoryStateFile()
    resent = Resent(file)
    for offset in range(10):
        resent.note(DEAD, 0, offset)
    assert resent.among(DEAD, 0, 4, 10) == 6
    assert resent.among(DEAD, 0, 0, 2) == 0, "the topic began anew"
    assert resent.among(DEAD, 0, 0, 10) == 0
    resent.note(DEAD, 0, 1)
    resent.keep([])
    assert resent.to_json() == {"resent": []}


async def test_a_file_that_holds_something_else_is_no_obstacle_and_there_is_a_bound() -> None:
    resent = Resent(MemoryStateFile({"resent": [["%DLQ%g", 0], "x", ["%DLQ%g", 0, [1, "2"]]]}))
    assert resent.among("%DLQ%g", 0, 0, 9) == 1
    for offset in range(MOST + 5):
        resent.note(DEAD, 0, offset)
    assert resent.among(DEAD, 0, 0, MOST * 2) == MOST - 1
