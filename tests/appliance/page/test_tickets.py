"""Tickets are good once and for five minutes; the pace lets a burst through and then little."""

from __future__ import annotations

from appliance.page.tickets import GOOD_S, MOST_TICKETS, Change, Tickets, TokenBucket


async def nothing() -> str:
    return ""


CHANGE = Change("resend", "Resend?", (), "", "/", nothing)


def test_a_ticket_is_good_once() -> None:
    tickets = Tickets(lambda: 0.0)
    ticket = tickets.issue(CHANGE)
    assert tickets.take("guessed") is None
    assert tickets.take(ticket) is CHANGE
    assert tickets.take(ticket) is None


def test_a_ticket_ends_after_five_minutes() -> None:
    clock = [0.0]
    tickets = Tickets(lambda: clock[0])
    ticket = tickets.issue(CHANGE)
    clock[0] = GOOD_S
    assert tickets.take(ticket) is None


def test_the_oldest_ticket_gives_way() -> None:
    tickets = Tickets(lambda: 0.0)
    made = [tickets.issue(CHANGE) for _ in range(MOST_TICKETS + 1)]
    assert tickets.take(made[0]) is None
    assert all(tickets.take(each) is CHANGE for each in made[1:])


def test_the_pace_lets_a_burst_through_and_then_one_by_one() -> None:
    clock = [0.0]
    pace = TokenBucket(lambda: clock[0], burst=3, per_s=0.5)
    assert [pace.allows() for _ in range(5)] == [True, True, True, False, False]
    clock[0] = 2.0
    assert [pace.allows() for _ in range(2)] == [True, False]
    clock[0] = 1000.0
    assert [pace.allows() for _ in range(4)] == [True, True, True, False]
