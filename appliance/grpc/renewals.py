"""Messages of push consumers: their time goes on while their client lives, three hours at most.

The handle of a message stays the same. A client that goes gives its messages back at once, one that is silent soon.
Source: RocketMQ 5.3 DefaultReceiptHandleManager, where handles change with each renewal.
"""

from collections import deque
from collections.abc import Callable, Iterable

import trio

from appliance.broker.pop.pop_table import Handle, Renewed

INVISIBLE_MS = 60_000
EVERY_S, BEFORE_S = 5.0, 20.0  # renewed when no more than this is left
LONGEST_S = 3 * 3600.0
GIVEN_BACK_MS = 1000
TURN = 500  # renewals between which others have their turn

Renew = Callable[[Handle, int], Renewed | None]


class _Lease:
    __slots__ = ("began_s", "due_s")

    def __init__(self, now_s: float) -> None:
        self.began_s, self.due_s = now_s, now_s + INVISIBLE_MS / 1000


class Leases:
    """The messages that one client has and that are renewed for it."""

    def __init__(self, renew: Renew) -> None:
        self._renew, self._of = renew, dict[Handle, _Lease]()

    def __len__(self) -> int:
        return len(self._of)

    def add(self, handle: Handle) -> None:
        self._of[handle] = _Lease(trio.current_time())

    def drop(self, handle: Handle) -> None:
        """The client has done with a message, or says itself when it is to come again."""
        self._of.pop(handle, None)

    def give_back(self) -> None:
        """The client has gone: its messages come again soon."""
        for handle in self._of:
            self._renew(handle, GIVEN_BACK_MS)
        self._of.clear()

    async def renew(self) -> None:
        """Renew what is due; forget what is done with, or was held for too long."""
        now_s = trio.current_time()
        due = deque(row for row in self._of.items() if row[1].due_s - now_s <= BEFORE_S)
        for number, (handle, lease) in enumerate(due):
            too_long = now_s - lease.began_s > LONGEST_S
            if too_long or self._renew(handle, INVISIBLE_MS) is None:
                self.drop(handle)
            else:
                lease.due_s = now_s + INVISIBLE_MS / 1000
            if number % TURN == TURN - 1:
                await trio.lowlevel.checkpoint()


async def keep_renewing(going_on: Callable[[], Iterable[Leases]]) -> None:
    """Renew until cancelled; `going_on` gives the leases of clients that live."""
    while True:
        await trio.sleep(EVERY_S)
        for leases in going_on():
            await leases.renew()
