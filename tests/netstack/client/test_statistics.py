"""Rates over the last minute, as tools read them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from netstack.client.statistics import ConsumeCounts


def test_rates_are_those_of_the_last_minute() -> None:
    now = 1000.0
    counts = ConsumeCounts(lambda: now)
    for second in range(120):
        now = 1000.0 + second
        counts.pulled("T", 10, 2.0)
        counts.consumed("T", 8, 40.0, failed=False)
        counts.consumed("T", 2, 4.0, failed=True)
    status = counts.status()["T"]
    assert 9.5 <= status.pull_tps <= 11
    assert 7.5 <= status.consume_ok_tps <= 9
    assert 1.9 <= status.consume_failed_tps <= 2.2
    assert (status.pull_rt, status.consume_rt, status.consume_failed_msgs) == (2.0, 4.4, 240)
    now = 5000.0
    assert counts.status()["T"].pull_tps == 0


def test_topics_do_not_share_counts_and_one_without_any_is_not_listed() -> None:
    counts = ConsumeCounts(lambda: 5.0)
    assert counts.status() == {}
    counts.pulled("T", 3)
    counts.consumed("U", 2, 10.0, failed=True)
    status = counts.status()
    assert (status["T"].pull_tps, status["T"].consume_failed_msgs) == (3.0, 0)
    assert (status["U"].pull_tps, status["U"].consume_failed_tps, status["U"].consume_failed_msgs) == (0.0, 2.0, 2)
    assert status["U"].consume_rt == 5.0


def test_the_first_second_is_not_blown_up_to_a_rate() -> None:
    now = 1000.0
    counts = ConsumeCounts(lambda: now)
    counts.pulled("T", 10)
    now = 1000.001
    assert counts.status()["T"].pull_tps == 10.0


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, 50), st.booleans()), min_size=1, max_size=60))
def test_memory_and_rates_stay_bounded_and_failures_are_counted_for_ever(steps: list[tuple[float, int, bool]]) -> None:
    now = 0.0
    counts = ConsumeCounts(lambda: now)
    for seconds, number, failed in steps:
        now += seconds
        counts.consumed("T", number, 1.0, failed=failed)
    status = counts.status()["T"]
    assert status.consume_failed_msgs == sum(number for _, number, failed in steps if failed)
    total = sum(number for _, number, _ in steps)
    assert 0 <= status.consume_ok_tps + status.consume_failed_tps <= total
    assert len(counts._topics["T"].steps) <= 6
