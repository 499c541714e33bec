"""What stands between a form and its change: a ticket that is shown, confirmed and used up once, and a pace."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from storage_driver.named_tuple import NamedTuple

MOST_TICKETS, GOOD_S = 16, 300.0
BURST, PER_S = 20, 1 / 3  # requests that change something: twenty at once, then twenty a minute


class Change(NamedTuple):
    """A change that somebody asked for and has not confirmed yet."""

    do: str
    title: str  # what is asked: "Create the topic orders?"
    facts: tuple[tuple[str, str], ...]
    note: str
    back: str  # the page's address to return to
    run: Callable[[], Awaitable[str]]  # makes the change and says what was done. Raises ChangeRefused.


class Tickets:
    """Changes by ticket. A ticket cannot be guessed, ends after five minutes, and is good once."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._open: dict[str, tuple[float, Change]] = {}  # oldest first

    def issue(self, change: Change) -> str:
        """Return a ticket for a change; the oldest gives way when there are too many."""
        while len(self._open) >= MOST_TICKETS:
            del self._open[next(iter(self._open))]
        ticket = secrets.token_urlsafe(18)
        self._open[ticket] = self._now_s() + GOOD_S, change
        return ticket

    def take(self, ticket: str) -> Change | None:
        """Return the change of a ticket and use the ticket up, None when it is not good."""
        until_s, change = self._open.pop(ticket, (0.0, None))
        return change if self._now_s() < until_s else None


class TokenBucket:
    """Lets some requests through at once and then so many a second."""

    def __init__(self, now_s: Callable[[], float], *, burst: int = BURST, per_s: float = PER_S) -> None:
        self._now_s, self._burst, self._per_s = now_s, burst, per_s
        self._left, self._at_s = float(burst), float("-inf")

    def allows(self) -> bool:
        """Count one request; False when it comes too soon."""
        now_s = self._now_s()
        self._left, self._at_s = min(self._burst, self._left + (now_s - self._at_s) * self._per_s), now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True
