"""The window over the half queue."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.broker.transactions.half_table import DECIDED, OPEN, SETTLED, HalfTable


def test_the_base_passes_a_half_only_when_its_op_record_is_durable() -> None:
    table = HalfTable(0, 0)
    table.decide(0)
    table.advance()
    assert (table.base, table.state(0)) == (0, DECIDED)
    table.settle(0, op=0)
    table.advance()
    assert (table.base, table.op_base, table.state(0)) == (1, 1, SETTLED)


def test_an_open_half_holds_the_base_and_the_op_queue() -> None:
    table = HalfTable(5, 7)
    for at, half in enumerate((6, 7, 8)):
        table.settle(half, op=7 + at)
    table.advance()
    assert (table.base, table.op_base) == (5, 7)
    table.settle(5, op=10)
    table.advance()
    assert (table.base, table.op_base) == (9, 11)


def test_a_copied_half_is_found_under_its_newest_offset_until_that_is_settled() -> None:
    table = HalfTable(0, 0)
    table.replace(0, 1)
    table.settle(0, op=0)
    table.replace(1, 2)
    table.settle(1, op=1)
    table.advance()
    assert (table.base, table.newest(0), table.state(table.newest(0))) == (2, 2, OPEN)
    table.settle(2, op=2)
    table.advance()
    assert table.newest(0) == 0


def test_a_decision_that_the_log_took_back_opens_the_half_again() -> None:
    table = HalfTable(0, 0)
    table.replace(0, 1)
    table.decide(0)
    table.reopen(0)
    assert (table.state(0), table.newest(0)) == (OPEN, 0)


def test_what_was_read_from_the_log_is_settled_and_holes_are_given_up() -> None:
    table = HalfTable(3, 0)
    table.settle(1, op=0)
    table.settle(4, op=1)
    table.advance()
    assert table.base == 3
    table.skip_to(4)
    table.advance()
    assert (table.base, table.op_base) == (5, 2)


@given(st.permutations(range(40)), st.integers(0, 40))
def test_in_any_order_of_decisions_the_base_is_the_oldest_open_half(order: list[int], decided: int) -> None:
    table = HalfTable(0, 0)
    for op, half in enumerate(order[:decided]):
        table.settle(half, op)
    table.advance()
    open_halves = sorted(order[decided:])
    assert table.base == (open_halves[0] if open_halves else 40)
    needed = [op for op, half in enumerate(order[:decided]) if half >= table.base]
    assert table.op_base <= min(needed, default=decided)
    if not open_halves:
        assert table.op_base == 40


def test_the_next_open_half_is_found_over_any_number_of_decided_ones() -> None:
    table = HalfTable(5, 0)
    assert (table.next_open(0), table.next_open(5), table.next_open(9)) == (5, 5, 9)
    for half in (5, 6, 7, 9):
        table.decide(half)
    table.settle(6, 0)
    assert [table.next_open(half) for half in (5, 7, 8, 9, 10, 20)] == [8, 8, 8, 10, 10, 20]
