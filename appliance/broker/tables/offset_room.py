"""How many consumer offsets there may be, and how many new ones each address may add. Sans I/O."""

from collections.abc import Iterable, Mapping, Sized
from typing import Final

from appliance.broker.tables.shares import Shares
from appliance.broker.tables.topics import MOST_QUEUES
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode

MOST_NAME: Final = 255  # characters of a topic, as of a group
MOST_PAIRS_BYTES: Final = 32 << 20  # of topics and groups that have offsets
PAIR_BYTES: Final = 300  # a pair's dictionary beside its name; sys.getsizeof on CPython 3.11
ALWAYS_ALLOWED: Final = 1000  # new offsets of one address while there is room at all
ALWAYS_ALLOWED_BYTES: Final = ALWAYS_ALLOWED * (PAIR_BYTES + 2 * MOST_NAME)


class OffsetRoom:
    """Counts offsets, bytes of the pairs of topic and group that have some, and what addresses added in this run."""

    def __init__(self, most: int) -> None:
        self._most, self.stored, self._pairs_bytes = most, 0, 0
        self._new, self._new_bytes = Shares(ALWAYS_ALLOWED), Shares(ALWAYS_ALLOWED_BYTES)

    def load(self, table: Mapping[str, Sized]) -> None:
        """Count anew what there is."""
        self.stored, self._pairs_bytes = sum(map(len, table.values())), sum(map(_pair_bytes, table))

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

    def added(self, pairs: Iterable[str], offsets: int, by: str = "") -> None:
        """Count offsets, and the pairs that had none before."""
        size = sum(map(_pair_bytes, pairs))
        self.stored, self._pairs_bytes = self.stored + offsets, self._pairs_bytes + size
        self._new.change(by, offsets)
        self._new_bytes.change(by, size)

    def dropped(self, pair: str, offsets: int) -> None:
        """A pair has no offsets any more."""
        self.stored, self._pairs_bytes = self.stored - offsets, self._pairs_bytes - _pair_bytes(pair)


def _pair_bytes(name: str) -> int:
    return PAIR_BYTES + len(name)
