"""What the core of a member is to hear next: in order, bounded, and its clock in between whatever others say."""

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from appliance.group.copies.common_point import cuts_something
from storage_driver.consensus.effects import Effects
from storage_driver.named_tuple import NamedTuple

MOST_EVENTS: Final = 256  # that wait: above, members are not read from
MOST_BYTES: Final = 32 << 20  # of the log that wait with them; an honest leader sends half of it ahead
TURN: Final = 16  # events, each some ten microseconds


class DriverEvent(NamedTuple):
    """Something for the core; `data` are bytes that came with an Append, `sender` who sent them."""

    run: Callable[[float], Effects]
    data: bytes = b""
    sender: str = ""
    fetched: bool = False  # the bytes of the Append came as a segment


class EventQueue:
    """What the core is to hear, in order; who adds much waits for room."""

    def __init__(self) -> None:
        self._events, self._work, self._room = deque[DriverEvent](), trio.Event(), trio.Event()
        self._bytes = self._served = self._urgent = 0  # urgent: at the front, what belongs to the event before
        self._rests = False

    def add(self, event: DriverEvent) -> None:
        self._events.append(event)
        self._bytes += len(event.data)
        self._work.set()

    def add_first(self, event: DriverEvent) -> None:
        self._events.appendleft(event)
        self._bytes += len(event.data)
        self._urgent += 1
        self._work.set()

    @property
    def rests(self) -> bool:
        """Whether the core hears nothing at the moment, and nothing waits for it."""
        return self._rests and not self._events

    async def wait_room(self) -> None:
        """Return once less than MOST_EVENTS and MOST_BYTES wait."""
        while len(self._events) >= MOST_EVENTS or self._bytes >= MOST_BYTES:
            await self._room.wait()

    async def next(self, rest_s: float) -> DriverEvent | None:
        """Return the next event, None when none comes in time; time is up whatever waits. Others get a turn."""
        self._served += 1
        if not self._served % TURN:
            await trio.lowlevel.checkpoint()
        if not self._events:
            self._work = trio.Event()
            self._rests = True
            with trio.move_on_after(rest_s):
                await self._work.wait()
            self._rests = False
        if not self._events or (rest_s <= 0 and not self._urgent):
            return None
        event = self._events.popleft()
        self._bytes -= len(event.data)
        self._urgent = max(0, self._urgent - 1)
        self._room.set()
        self._room = trio.Event()
        return event


def needs_turn(effects: Effects) -> bool:
    """Return whether what the core wants needs the disk, or changes what this member is."""
    hard, table, cut, _, begin_term, members, send, _, status = effects
    changes = (hard, table, cut, begin_term, members, status)
    return any(each is not None for each in changes) or any(cuts_something(message) for _, message in send)
