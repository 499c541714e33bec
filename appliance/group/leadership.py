"""Who leads a group, as one member knows it: the driver sets it, the rest of the box reads it or waits for a change."""

from collections.abc import Callable
from typing import Final

import trio

from storage_driver.named_tuple import NamedTuple

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
CANDIDATE: Final = "candidate"
LEARNER: Final = "learner"  # it copies and has no vote yet


class LeadershipState(NamedTuple):
    """What one member knows. `ready`: this leader may serve, its term's first record is committed, its lease holds.

    `lacks_copies`: it serves, and messages are not acknowledged, since too few boxes take the log.
    """

    role: str = FOLLOWER
    term: int = 0
    leader: str = ""  # its member id; empty: unknown
    address: str = ""  # the leader's broker port, host:port, for clients
    ready: bool = False
    lacks_copies: bool = False

    @property
    def serves(self) -> bool:
        """Whether this member takes messages."""
        return self.role == LEADER and self.ready


class Leadership:
    """The newest state. Both sides are in the trio loop; `set` never waits."""

    def __init__(self, state: LeadershipState | None = None) -> None:
        self.current = state if state is not None else LeadershipState()
        self._changed = trio.Event()
        self.parting = False  # this leader hands over: first its broker ends, with what it has in the log
        self._ended = trio.Event()
        self._ended.set()

    def broker_began(self) -> None:
        """The broker takes messages."""
        self._ended = trio.Event()

    def broker_ended(self) -> None:
        """The broker takes messages no longer, and appends nothing more."""
        self._ended.set()

    async def wait_broker_ended(self) -> None:
        """Return once no broker takes messages."""
        await self._ended.wait()

    def set(self, state: LeadershipState) -> None:
        """Make a state the current one, and wake who waits for another than before."""
        if state != self.current:
            self.current = state
            self._changed.set()
            self._changed = trio.Event()

    async def wait_change(self, than: LeadershipState) -> LeadershipState:
        """Return the current state once it differs from `than`, at once if it does; states in between are skipped."""
        return await self.wait_for(lambda state: state != than)

    async def wait_for(self, holds: Callable[[LeadershipState], bool]) -> LeadershipState:
        """Return the first current state of which something holds; none may be missed that lasts."""
        while not holds(self.current):
            await self._changed.wait()
        return self.current
