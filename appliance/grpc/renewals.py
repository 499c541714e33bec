"""Messages of push consumers: their time goes on while their client lives, three hours at most.

The handle of a message stays the same. A client that goes gives its messages back at once, one that is silent soon.
What was sent on a connection that has ended is not renewed, though its client lives on another: nobody knows what it
read. It comes again within INVISIBLE_MS unless the client acknowledges it before; given back at once, what a client
works on would come twice each time that a proxy changes its connections.
Source: RocketMQ 5.3 DefaultReceiptHandleManager, where handles change with each renewal.
"""

from collections import deque
from collections.abc import Callable, Iterable

import trio

from appliance.broker.pop.pop_table import Handle, Renewed
from netstack.serving.peer import Peer

INVISIBLE_MS = 60_000
EVERY_S, BEFORE_S = 5.0, 20.0  # renewed when no more than this is left
LONGEST_S = 3 * 3600.0
GIVEN_BACK_MS = 1000
TURN = 500  # renewals between which others have their turn

Renew = Callable[[Handle, int], Renewed | None]


class _Lease:
    """A message; `peer` is the connection that it was sent on."""

    __slots__ = ("began_s", "due_s", "peer")

    def __init__(self, peer: Peer, now_s: float) -> None:
        self.peer, self.began_s, self.due_s = peer, now_s, now_s + INVISIBLE_MS / 1000


class Leases:
    """The messages that one client has and that are renewed for it."""

    def __init__(self, renew: Renew) -> None:
        self._renew, self._of = renew, dict[Handle, _Lease]()

    def __len__(self) -> int:
        return len(self._of)

    def add(self, handle: Handle, peer: Peer) -> None:
        self._of[handle] = _Lease(peer, trio.current_time())

    def drop(self, handle: Handle) -> bool:
        """The client has done with a message, or says itself when it is to come again. Return whether it was here."""
        return self._of.pop(handle, None) is not None

    def give_back(self) -> None:
        """The client has gone: its messages come again soon."""
        for handle in self._of:
            self._renew(handle, GIVEN_BACK_MS)
        self._of.clear()

    async def renew(self) -> None:
        """Renew what is due; forget what is done with, held for too long or sent on a connection that has ended."""
        now_s = trio.current_time()
        due = deque(row for row in self._of.items() if row[1].due_s - now_s <= BEFORE_S)
        for number, (handle, lease) in enumerate(due):
            over = now_s - lease.began_s > LONGEST_S or lease.peer.closed.is_set()
            if over or self._renew(handle, INVISIBLE_MS) is None:
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
