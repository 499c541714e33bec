from itertools import count
from pathlib import Path
from typing import Any

import pytest

from storage_driver.errors import StoreRefused
from storage_driver.files.disk import RealDisk
from storage_driver.files.state_file import StateFile
from storage_driver.log.lineage import ALONE_KEPT, RUNS_KEPT, TERMS_KEPT, AloneRange, Lineage


def lineage(tmp_path: Path, first_id: int = 1) -> Lineage:
    found = Lineage(StateFile(RealDisk(), tmp_path / "identity.json"), count(first_id).__next__)
    found.load()
    return found


def test_a_new_log_begins_an_epoch_and_every_opening_a_run(tmp_path: Path) -> None:
    one = lineage(tmp_path)
    one.begin_run(0, 0)
    assert (one.epochs, one.runs) == ([(1, 0)], [(2, 0)])
    two = lineage(tmp_path, 10)
    two.begin_run(0, 500)
    assert (two.epochs, two.runs, two.epoch, two.run) == ([(1, 0)], [(2, 0), (10, 500)], 1, 10)


def test_a_log_without_identity_begins_an_epoch_at_its_first_byte(tmp_path: Path) -> None:
    one = lineage(tmp_path)
    one.begin_run(1024, 5000)
    assert one.epochs == [(1, 1024)]


def test_a_fork_ends_the_epochs_behind_it(tmp_path: Path) -> None:
    one = lineage(tmp_path)
    one.begin_run(0, 0)
    one.fork(80)
    one.land("00ff")
    again = lineage(tmp_path)
    assert (again.epochs, again.landing) == ([(1, 0), (3, 80)], "00ff")
    again.fork(0)
    assert len(again.epochs) == 1


def test_old_runs_are_forgotten(tmp_path: Path) -> None:
    one = lineage(tmp_path)
    one.runs = [(i + 1, i) for i in range(RUNS_KEPT)]
    one.begin_run(0, 5000)
    assert (len(one.runs), one.runs[0]) == (RUNS_KEPT, (2, 1))


def test_a_run_that_began_above_a_cut_is_forgotten(tmp_path: Path) -> None:
    for end in (100, 4869, 4242):
        one = lineage(tmp_path)
        one.begin_run(0, end)
    assert [at for _, at in one.runs] == [100, 4242]
    one.runs = [(1, 100), (2, 4869), (3, 4242)]  # as an earlier build kept them
    one.begin_run(0, 5000)
    assert [at for _, at in one.runs] == [100, 4242, 5000]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"layout":1}', '{"layout":1,"epochs":[],"runs":[]}', '{"layout":1,"epochs":[[0,1]],"runs":[]}'],
)
def test_a_damaged_identity_counts_as_missing_and_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "identity.json").write_text(text)
    one = lineage(tmp_path)
    assert one.damage is not None
    one.begin_run(0, 100)
    assert one.epochs == [(1, 0)]


def test_the_next_layout_is_read_and_a_later_one_refused(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text('{"layout":2,"epochs":[[5,0]],"runs":[[6,0]],"new":1}')
    assert lineage(tmp_path).epoch == 5
    (tmp_path / "identity.json").write_text('{"layout":3,"epochs":[[5,0]],"runs":[]}')
    with pytest.raises(StoreRefused, match="update"):
        lineage(tmp_path)


def test_a_term_rises_survives_a_restart_and_is_not_in_the_file_of_a_box_alone(tmp_path: Path) -> None:
    one = lineage(tmp_path)
    one.begin_run(0, 0)
    assert one.term == 0
    assert "terms" not in (tmp_path / "identity.json").read_text()
    one.begin_term(3, 100)
    one.begin_term(5, 400)
    assert lineage(tmp_path).terms == [(3, 100), (5, 400)]
    with pytest.raises(ValueError, match="term 5 after term 5"):
        one.begin_term(5, 500)


def test_a_term_that_begins_below_others_takes_their_place(tmp_path: Path) -> None:
    one = lineage(tmp_path)
    one.begin_run(0, 0)
    one.begin_term(3, 100)
    one.begin_term(5, 400)
    one.begin_term(6, 400)
    assert one.terms == [(3, 100), (6, 400)]


def test_old_terms_are_forgotten(tmp_path: Path) -> None:
    one = lineage(tmp_path)
    one.begin_run(0, 0)
    one.terms = [(number + 1, number) for number in range(TERMS_KEPT)]
    one.begin_term(TERMS_KEPT + 1, TERMS_KEPT)
    assert (len(one.terms), one.terms[0]) == (TERMS_KEPT, (2, 1))


def test_what_was_acknowledged_by_this_disk_alone_is_kept_until_it_ends_and_over_a_restart(tmp_path: Path) -> None:
    one = lineage(tmp_path)
    one.begin_run(0, 0)
    one.begin_alone(100, 1)
    one.begin_alone(200, 2)
    again = lineage(tmp_path)
    assert again.is_alone
    assert again.alone == [AloneRange(100, None, 1)]
    again.end_alone(300)
    again.end_alone(400)
    again.begin_alone(500, 3)
    again.end_alone(500)
    assert lineage(tmp_path).alone == [AloneRange(100, 300, 1)], "the second one acknowledged nothing"
    again.alone = [AloneRange(number, number + 1, number) for number in range(ALONE_KEPT)]
    again.begin_alone(9000, ALONE_KEPT)
    assert [each.at_ms for each in lineage(tmp_path).alone] == list(range(1, ALONE_KEPT + 1))


def test_a_range_of_other_things_than_numbers_is_damage(tmp_path: Path) -> None:
    one = lineage(tmp_path)
    one.begin_run(0, 0)
    one.alone = [AloneRange(0, "x", 1)]  # type: ignore[arg-type]
    one.save()
    assert lineage(tmp_path).damage is not None


def test_what_travels_apart_is_known_from_switch_to_switch_and_over_a_restart(tmp_path: Path) -> None:
    made = lineage(tmp_path)
    made.begin_run(0, 0)
    made.switch_express(0, ())
    assert made.express == [], "nothing does at first"
    for log_offset, topics in ((40, ("A",)), (60, ("A",)), (80, ("A", "B")), (80, ("B",)), (90, ())):
        made.switch_express(log_offset, topics)
    assert made.express == [(40, ("A",)), (80, ("B",)), (90, ())]
    again = lineage(tmp_path)
    assert again.express == made.express
    again.switch_express(100, ("C",), first=85)
    assert again.express == [(80, ("B",)), (90, ()), (100, ("C",))], "the log begins at 85"


def test_switches_of_an_earlier_release_come_before_all_others(tmp_path: Path) -> None:
    made = lineage(tmp_path)
    made.begin_run(0, 0)
    made.switch_express(50, ("A",))
    again = lineage(tmp_path)
    again.begin_run(0, 49)
    assert again.express == [], "the disk has lost the place: it may be within a record now"
    made.add_older_express([(20, ("A",)), (60, ())])
    assert made.express == [(20, ("A",)), (50, ("A",))]


def test_who_goes_on_with_a_log_has_its_express_topics(tmp_path: Path) -> None:
    made = lineage(tmp_path)
    made.begin_run(0, 0)
    made.switch_express(50, ("A",))
    made.take_over([(7, 0)], [(8, 0)], None, 100)
    assert made.express == [(50, ("A",))], "the other did not say"
    made.take_over([(7, 0)], [(8, 0)], None, 100, [(20, ("A",))])
    assert made.express == [(20, ("A",))]
    made.take_over([(7, 0)], [(8, 0)], None, 100, [])
    assert made.express == [], "what was switched here has not become part of the log"
    made.switch_express(120, ("A",))
    made.adopt([(9, 0)])
    assert made.express == [], "it is another log"


@pytest.mark.parametrize("switches", [[("x", ("A",))], [(1, (2,))], [(1,)], 7])
def test_a_switch_of_other_things_is_damage(tmp_path: Path, switches: Any) -> None:
    made = lineage(tmp_path)
    made.begin_run(0, 0)
    made.express = switches
    made.save()
    assert lineage(tmp_path).damage is not None
