"""The filters of pulls that wait: each large one is kept once, and all of them together have an end.

A pull brings its filter along. While it waits the filter is in memory: 32 KiB of tags as half a megabyte of hashes, as
much SQL92 as a megabyte of closures. Sans I/O.
"""

from collections.abc import Awaitable
from typing import Final, TypeVar

from appliance.broker.filter.subscriptions import AcceptsRecord, AcceptsTags, Subscription
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.named_tuple import NamedTuple

SMALL: Final = 2 << 10  # bytes of memory: twenty tags, one comparison; such filters are not counted
MOST_BYTES: Final = 24 << 20
PER_TAG, PER_CHARACTER = 100, 30  # of a hash in a set; of SQL92, see sql92.SMALL_TEXT
EVERYTHING: Final = Subscription("")
Key = tuple[str, str]
Accepts = tuple[AcceptsTags | None, AcceptsRecord | None]
Result = TypeVar("Result")


class Filtered(NamedTuple):
    """The filter of a pull: its identity, the memory it takes, and what it was made of."""

    key: Key
    cost: int
    accepts: Accepts
    subscription: Subscription = EVERYTHING

    @property
    def is_small(self) -> bool:
        return self.cost <= SMALL


def filtered(subscription: Subscription, accepts: Accepts, *, inline: bool) -> Filtered:
    """Return the filter of a pull; the tags of a heartbeat are in the group's table, whoever waits with them."""
    key = (subscription.kind, subscription.text)
    if accepts[1] is not None:
        return Filtered(key, PER_CHARACTER * len(subscription.text), accepts, subscription)
    own = inline and accepts[0] is not None
    cost = len(subscription.text) + PER_TAG * len(subscription.codes) if own else 0
    return Filtered(key, cost, accepts, subscription)


class _Kept:
    __slots__ = ("filtered", "pulls")

    def __init__(self, kept: Filtered) -> None:
        self.filtered, self.pulls = kept, 0


class KeptFilters:
    """The large filters of all pulls that wait."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes, self.bytes = most_bytes, 0
        self._kept: dict[Key, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def check(self, wanted: Filtered) -> None:
        """Raise Refused (SYSTEM_BUSY) when there is no room for a filter."""
        if wanted.is_small or wanted.key in self._kept or self.bytes + wanted.cost <= self._most_bytes:
            return
        raise Refused(
            ResponseCode.SYSTEM_BUSY,
            f"[OVERLOAD]the filters of waiting pulls take {self.bytes} bytes, at most {self._most_bytes} are allowed; "
            "retry in a few seconds, and filter by fewer tags or a shorter expression",
        )

    def enter(self, wanted: Filtered) -> Filtered:
        """Keep a large filter while a pull waits; return the one to use, which may be an equal one.

        Of its own one who waits must keep nothing, not even the text.
        """
        kept = self._kept.get(wanted.key)
        if kept is None:
            kept = self._kept[wanted.key] = _Kept(wanted)
            self.bytes += wanted.cost
        kept.pulls += 1
        return kept.filtered

    async def during(self, wait: Awaitable[Result], key: Key) -> Result:
        """Wait, then release the filter."""
        try:
            return await wait
        finally:
            kept = self._kept[key]
            kept.pulls -= 1
            if not kept.pulls:
                del self._kept[key]
                self.bytes -= kept.filtered.cost
