from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from uplink_spark.jobs.intervals import Covered, coverage_of, merged, minus

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def points(found: list[tuple[int, int]]) -> set[int]:
    return {n for start, end in found for n in range(start, end)}


@given(spans)
def test_merged_ranges_hold_the_same_points_and_do_not_touch(found: list[tuple[int, int]]) -> None:
    joined = merged(found)
    assert points(joined) == points(found)
    assert all(first[1] < second[0] for first, second in pairwise(joined))


@given(st.tuples(st.integers(0, 30), st.integers(0, 30)), spans)
def test_what_is_left_of_a_range_is_what_no_other_holds(span: tuple[int, int], taken: list[tuple[int, int]]) -> None:
    assert points(list(minus(span, merged(taken)))) == points([span]) - points(taken)


@given(spans, spans)
def test_coverage_has_no_hole_and_data_wins_over_loss(
    landed: list[tuple[int, int]], lost: list[tuple[int, int]]
) -> None:
    stretches = coverage_of(landed, lost)
    by_state = {state: points([(s.start, s.end) for s in stretches if s.state == state]) for state in ("landed", "gap")}
    assert by_state["landed"] == points(landed)
    assert by_state["gap"] == points(lost) - points(landed)
    assert all(first.end == second.start for first, second in pairwise(stretches))


def test_an_undeclared_hole_is_still_expected() -> None:
    assert coverage_of([(0, 10), (30, 40)], [(10, 20)]) == [
        Covered(0, 10, "landed"),
        Covered(10, 20, "gap"),
        Covered(20, 30, "pending"),
        Covered(30, 40, "landed"),
    ]
