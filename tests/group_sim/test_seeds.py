"""Groups, each from one seed; every step is checked (invariants.py). A seed that fails can be replayed.

`make group-sim` plays a million.
"""

from pathlib import Path

import pytest

from tests.group_sim import run
from tests.group_sim.records import Fault
from tests.group_sim.run import Results, add, main, schedule, table
from tests.group_sim.schedules import FIRST_DAMAGED, FIRST_LOCAL, play

PIECES, PIECE = 10, 250


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
def test_no_seed_has_a_fault(piece: int) -> None:
    _play_all(range(piece * PIECE, (piece + 1) * PIECE))


@pytest.mark.slow
def test_no_seed_has_a_fault_where_each_disk_counts_for_itself() -> None:
    _play_all(range(FIRST_LOCAL, FIRST_LOCAL + 200))


def test_no_seed_has_a_fault_where_votes_are_damaged() -> None:
    _play_all(range(FIRST_DAMAGED, FIRST_DAMAGED + 300))


def _play_all(seeds: range) -> None:
    for seed in seeds:
        try:
            play(seed)
        except Fault as fault:
            text = schedule(seed)
            pytest.fail(f"{fault}\n{text}\nreplay: python -m tests.group_sim.run --replay {seed}", pytrace=False)


def test_a_seed_always_plays_the_same() -> None:
    one, two = list[str](), list[str]()
    assert play(7, trace=one) == play(7, trace=two)
    assert one == two
    assert len(one) > 100


def test_what_was_played_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    sums: dict[str, list[int]] = {}
    for seed in range(6):
        add(sums, play(seed))
    lines = list(table(sums))
    assert lines[2].startswith("| three boxes | 1 | ")
    assert lines[-1].startswith("| all | 6 | ")
    assert main(["--replay", "3"]) == 0
    assert capsys.readouterr().out.startswith("seed 3, two boxes and a witness, one copy\n")


def test_results_are_kept_and_those_of_another_core_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.jsonl"
    Results(kept).note(0, {"three boxes": [1, 2, 3, 4, 5, 6]}, 0.5)
    Results(kept).note(500, {"three boxes": [1, 1, 1, 1, 1, 1]}, 0.25)
    again = Results(kept)
    assert (again.played, again.sums, again.spent_s) == ({0, 500}, {"three boxes": [2, 3, 4, 5, 6, 7]}, 0.75)
    again.note(0, {"three boxes": [9] * 6}, 9.0)
    assert again.spent_s == 0.75, "what was played twice counts once"
    monkeypatch.setattr(run, "digest", lambda: "another")
    assert not Results(kept).played
