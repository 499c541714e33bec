"""Assigns queues to members, with the results of the Java client's strategies. Source: RocketMQ 4.9.8 rebalance.*.

Every member of a group computes this alone, so all need the same strategy and the same order of queues and members.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Protocol

from netstack.client.errors import UsageError
from netstack.client.text import code_units
from netstack.wire.json_body import MessageQueue


class Strategy(Protocol):
    """Gives one member its part of the queues; both lists arrive sorted."""

    @property
    def name(self) -> str: ...

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]: ...


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return code_units(queue.topic), code_units(queue.broker_name), queue.queue_id


def allocate(
    strategy: Strategy, me: str, queues: Collection[MessageQueue], members: Collection[str]
) -> list[MessageQueue]:
    """Return my queues: both lists sorted as Java sorts them. A non-member gets nothing, except a fixed list."""
    return strategy(me, sorted(queues, key=queue_order), sorted(members, key=code_units))


@dataclass(frozen=True, slots=True)
class Averagely:
    """Contiguous parts, the first members get one more."""

    name: str = "AVG"

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if me not in members:
            return []
        index, (share, rest) = members.index(me), divmod(len(queues), len(members))
        size = 1 if len(queues) <= len(members) else share + (index < rest)
        start = index * size if index < rest else index * size + rest
        return list(queues[start : start + size])


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Round robin."""

    name: str = "AVG_BY_CIRCLE"

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        return list(queues[members.index(me) :: len(members)]) if me in members else []


@dataclass(frozen=True, slots=True)
class ByConfig:
    """A fixed list."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only queues whose broker is named room@name with one of these rooms."""

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if me not in members:
            return []
        near = [queue for queue in queues if room_of(queue.broker_name) in self.rooms]
        index, (share, rest) = members.index(me), divmod(len(near), len(members))
        mine = near[share * index : share * (index + 1)]
        return mine + near[share * len(members) + index :][:1] if index < rest else mine


def room_of(broker_name: str) -> str | None:
    parts = broker_name.rstrip("@").split("@")  # Java's split drops empty parts at the end
    return parts[0] if len(parts) == 2 else None


@dataclass(frozen=True, slots=True)
class NearMachineRoom:
    """The queues of my room among its members; rooms without members are shared by all.

    Raises UsageError where a resolver names no room, as Java's does; then nothing changes.
    """

    inner: Strategy
    room_of_queue: Callable[[MessageQueue], str]
    room_of_member: Callable[[str], str]

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if me not in members:
            return []
        queues_in: dict[str, list[MessageQueue]] = {}
        members_in: dict[str, list[str]] = {}
        for queue in queues:
            queues_in.setdefault(_named(self.room_of_queue(queue), queue), []).append(queue)
        for member in members:
            members_in.setdefault(_named(self.room_of_member(member), member), []).append(member)
        room = self.room_of_member(me)
        near = queues_in.pop(room, [])
        mine = self.inner(me, near, members_in[room]) if near else []
        for other in sorted(queues_in, key=code_units):
            if other not in members_in:
                mine += self.inner(me, queues_in[other], members)
        return mine


def _named(room: str, of: object) -> str:
    if not room:
        raise UsageError(f"no machine room for {of}: the resolver given to NearMachineRoom must name one for each")
    return room


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """A ring of MD5 hashes with some nodes per member; few queues move when a member comes or goes."""

    nodes: int = 10
    name: str = "CONSISTENT_HASH"

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if me not in members:
            return []
        ring = {_hash(f"{member}-{number}"): member for member in members for number in range(self.nodes)}
        hashes = sorted(ring)
        return [queue for queue in queues if ring[_owner(hashes, _hash(_text(queue)))] == me]


def _hash(key: str) -> int:
    return int.from_bytes(md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


def _owner(hashes: Sequence[int], wanted: int) -> int:
    at = bisect_left(hashes, wanted)
    return hashes[at if at < len(hashes) else 0]


def _text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
