"""How many consumer offsets there may be, and how many new ones each address may add. Sans I/O."""

from collections.abc import Mapping, Sized
from typing import Final

from appliance.broker.tables.shares import Shares
from appliance.broker.tables.topics import MOST_QUEUES
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.named_tuple import NamedTuple

MOST_NAME: Final = 255  # characters of a topic, as of a group
MOST_PAIRS_BYTES: Final = 32 << 20  # of topics and groups that have offsets
PAIR_BYTES: Final = 300  # a pair's dictionary beside its name; sys.getsizeof on CPython 3.11
PART_BYTES: Final = 200  # that an address added to a pair
ALWAYS_ALLOWED: Final = 1000  # new offsets of one address while there is room at all
ALWAYS_ALLOWED_BYTES: Final = ALWAYS_ALLOWED * (PAIR_BYTES + 2 * MOST_NAME)


class _Part(NamedTuple):
    """What an address added to a pair: offsets, and bytes, those of the pair too if there was none before."""

    by: str
    offsets: int
    size: int


class OffsetRoom:
    """Counts offsets, bytes of the pairs of topic and group that have some, and what addresses added since `load`."""

    def __init__(self, most: int) -> None:
        self._most, self.stored, self._pairs_bytes = most, 0, 0
        self._new, self._new_bytes = Shares(ALWAYS_ALLOWED), Shares(ALWAYS_ALLOWED_BYTES)
        self._parts: dict[str, tuple[_Part, ...]] = {}

    def load(self, table: Mapping[str, Sized]) -> None:
        """Count anew what there is; it is nobody's."""
        self.stored, self._pairs_bytes = sum(map(len, table.values())), sum(map(_pair_bytes, table))
        self._new, self._new_bytes = Shares(ALWAYS_ALLOWED), Shares(ALWAYS_ALLOWED_BYTES)
        self._parts = {}

    def check(self, topic: str, group: str, queue_id: int, by: str) -> None:
        """Raise Refused unless one more offset has room; `by`: the address that adds it, empty for nobody's."""
        if not 0 <= queue_id < MOST_QUEUES:
            text = f"queue {queue_id} of topic {topic}: no topic has more than {MOST_QUEUES} queues"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        if len(topic) > MOST_NAME or len(group) > MOST_NAME:
            text = f"topic of {len(topic)}, group of {len(group)} characters, at most {MOST_NAME} are allowed"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        free, free_bytes = self._most - self.stored, MOST_PAIRS_BYTES - self._pairs_bytes
        if free <= 0 or free_bytes <= 0:
            text = f"{self.stored} offsets are stored, which is the limit: delete unused groups"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        if not (self._new.room(by, free) and self._new_bytes.room(by, free_bytes)):
            text = f"{by} has stored as many new offsets as it leaves to others: delete unused groups, or use fewer"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)

    def added(self, pair: str, offsets: int, by: str = "", *, is_new: bool) -> None:
        """Count offsets of a pair, which had none before if it `is_new`."""
        size, parts = _pair_bytes(pair) if is_new else 0, self._parts.get(pair, ())
        if by:
            size += 0 if any(part.by == by for part in parts) else PART_BYTES
            self._parts[pair] = _with(parts, _Part(by, offsets, size))
            self._count(_Part(by, offsets, size), 1)
        self.stored, self._pairs_bytes = self.stored + offsets, self._pairs_bytes + size

    def dropped(self, pair: str, offsets: int) -> None:
        """A pair has no offsets any more: who added them may add others."""
        parts = self._parts.pop(pair, ())
        self.stored, self._pairs_bytes = self.stored - offsets, self._pairs_bytes - _pair_bytes(pair)
        self._pairs_bytes -= PART_BYTES * len(parts)
        for part in parts:
            self._count(part, -1)

    def _count(self, part: _Part, sign: int) -> None:
        self._new.change(part.by, sign * part.offsets)
        self._new_bytes.change(part.by, sign * part.size)


def _with(parts: tuple[_Part, ...], more: _Part) -> tuple[_Part, ...]:
    """Return the parts of a pair once an address has added more."""
    had = next((part for part in parts if part.by == more.by), _Part(more.by, 0, 0))
    others = tuple(part for part in parts if part is not had)
    return (*others, _Part(more.by, had.offsets + more.offsets, had.size + more.size))


def _pair_bytes(name: str) -> int:
    return PAIR_BYTES + len(name)
