"""What the core has heard of its log: at once where somebody waits for what it says, else before it hears anything."""

from appliance.group.told_log import ToldLog
from storage_driver.consensus.effects import Effects


class Core:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, ...]] = []
        self.commits_own_disk = True

    def appended(self, now_s: float, end: int) -> Effects:
        self.heard.append((end,))
        return Effects()

    def note_log(self, now_s: float, end: int, synced: int) -> None:
        self.heard.append((end, synced))


class Log:
    """Marks."""

    def __init__(self, end: int) -> None:
        self.end = self.synced = self.committed = end

    def commit(self, log_offset: int) -> None:
        self.committed = log_offset


def test_what_nobody_waits_for_is_told_together() -> None:
    core, log = Core(), Log(100)
    told = ToldLog(core, log)
    told.tell(1.0)
    assert (core.heard, told.waits) == ([], True)
    told.writing(150)
    told.writing(200)
    log.synced = 150
    told.commit(150)
    assert (core.heard, log.committed) == ([], 150)
    told.tell(1.0)
    told.tell(1.0)
    assert (core.heard, told.end) == ([(200, 150)], 200)
    log.synced = 200
    told.commit(200)
    told.tell(1.0)
    assert core.heard[1:] == [(200, 200)], "the end is known already"
    core.commits_own_disk = False
    assert not told.waits


def test_a_mark_above_an_end_that_waits_its_turn_is_told_again() -> None:
    core, log = Core(), Log(100)
    told = ToldLog(core, log)
    log.end = log.synced = 500  # it began to be written while the core waited for copies: its end waits in the queue
    told.commit(500)
    told.tell(1.0)
    told.appended(1.0, 500)
    told.tell(1.0)
    told.tell(1.0)
    assert core.heard == [(100, 500), (500,), (500, 500)], "the core counts no mark above the end that it knows"


def test_nothing_of_what_is_cut_off_is_told() -> None:
    core, log = Core(), Log(100)
    told = ToldLog(core, log)
    log.end = log.synced = 500
    told.commit(500)
    told.tell(1.0)
    log.end = log.synced = 50
    told.cut(50)
    told.tell(1.0)
    assert core.heard == [(100, 500)], "it hears that the cut is done"


def test_the_end_is_told_once_and_anew_after_a_cut() -> None:
    core, log = Core(), Log(100)
    told = ToldLog(core, log)
    told.appended(1.0, 100)
    assert core.heard == [], "it began with that"
    told.appended(1.0, 200)
    told.appended(1.0, 200)
    assert core.heard == [(200,)]
    told.writing(300)
    told.tell(1.0)
    told.cut(150)
    assert told.end == 150
    told.commit(160)
    told.tell(1.0)
    assert core.heard[-1] == (150, log.synced), "not what was before the cut"
