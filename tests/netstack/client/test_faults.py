"""Which broker is avoided how long, and which queue comes next."""

import pytest

from netstack.client.faults import FaultTable, next_queue
from netstack.wire.json_body import MessageQueue

A = [MessageQueue("T", "a", number) for number in range(2)]
B = [MessageQueue("T", "b", number) for number in range(2)]
BOTH = A + B


@pytest.mark.parametrize(
    ("latency_ms", "avoided_ms"),
    [(49, 0), (549, 0), (550, 30_000), (1000, 60_000), (2000, 120_000), (3000, 180_000), (15_000, 600_000)],
)
def test_a_slow_broker_is_avoided_by_apaches_table(latency_ms: int, avoided_ms: int) -> None:
    table = FaultTable()
    table.note("a", latency_ms, 1000)
    assert table.usable("a", 1000 + avoided_ms)
    assert not avoided_ms or not table.usable("a", 999 + avoided_ms)
    assert {table.pick(BOTH, position, 1000).broker_name for position in range(4)} == (
        {"b"} if avoided_ms else {"a", "b"}
    )


def test_a_failed_broker_is_avoided_for_ten_minutes_and_then_tried_once() -> None:
    table = FaultTable()
    table.note("a", 3, 0, failed=True)
    assert not table.usable("a", 599_999)
    assert table.usable("a", 600_000)
    assert table.pick(BOTH, 0, 600_000) == A[0]


def test_with_no_usable_broker_one_of_the_better_half_is_taken() -> None:
    table = FaultTable()
    table.note("a", 600, 0)
    table.note("b", 3000, 0)
    assert {table.pick(BOTH, position, 1).broker_name for position in range(8)} == {"a"}
    assert table.pick(BOTH, 3, 1) == A[1]  # rewritten: position 3 is b's


def test_a_broker_that_has_no_queue_any_more_is_forgotten() -> None:
    table = FaultTable()
    table.note("gone", 600, 0)
    table.note("b", 20_000, 0)
    assert table.pick(B, 1, 1) == B[1]
    assert table.usable("gone", 1)


def test_without_avoidance_queues_come_in_turn_and_a_retry_goes_to_another_broker() -> None:
    assert [next_queue(BOTH, position, None) for position in range(5)] == [*A, *B, A[0]]
    assert next_queue(BOTH, 0, "a") == B[0]
    assert next_queue(A, 1, "a") == A[1]  # there is no other
