"""What was promised and what came: the checker of a soak. Plain values, no clock, no socket.

A stream is one producer's numbering. A number is attempted, then acknowledged or not; every group that reads the stream
must get each acknowledged number, may get attempted ones, and nothing else. Duplicates are counted, not forbidden.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stream:
    """One numbering: what was attempted, acknowledged, taken back; what each group got, by number."""

    attempted: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    taken_back: set[int] = field(default_factory=set)  # rolled back: must never come
    failures: int = 0
    got: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    again: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    early: int = 0  # delayed messages that came before their time

    def missing(self, group: str) -> set[int]:
        """Return the acknowledged numbers that a group did not get."""
        return self.acknowledged - self.taken_back - self.got[group]


@dataclass(frozen=True, slots=True)
class Fault:
    """One promise that was broken."""

    stream: str
    group: str
    what: str
    count: int
    example: int


class History:
    """All streams, and the order of keyed messages."""

    def __init__(self, groups: dict[str, tuple[str, ...]]) -> None:
        self.groups = groups  # stream -> the groups that read it
        self.streams = {name: Stream() for name in groups}
        self._last: dict[tuple[str, str], int] = {}  # group, key -> highest number so far
        self.disorder: list[tuple[str, str, int, int]] = []  # group, key, number, the higher one before it

    def attempt(self, stream: str, number: int) -> None:
        self.streams[stream].attempted.add(number)

    def acknowledge(self, stream: str, number: int) -> None:
        self.streams[stream].acknowledged.add(number)

    def take_back(self, stream: str, number: int) -> None:
        self.streams[stream].taken_back.add(number)

    def fail(self, stream: str) -> None:
        """Note an attempt without an acknowledgement: it may have been stored, or not."""
        self.streams[stream].failures += 1

    def deliver(self, stream: str, group: str, number: int, *, early: bool = False) -> bool:
        """Note a delivery; return whether it was the first of this number to this group."""
        seen = self.streams[stream]
        seen.early += early
        if number in seen.got[group]:
            seen.again[group] += 1
            return False
        seen.got[group].add(number)
        return True

    def deliver_in_order(self, stream: str, group: str, key: str, number: int) -> None:
        """Note a delivery of a key's message: a first delivery must be higher than all first ones before it."""
        if not self.deliver(stream, group, number):
            return
        before = self._last.get((group, key), -1)
        if number < before:
            self.disorder.append((group, key, number, before))
        else:
            self._last[group, key] = number

    def waiting(self) -> dict[tuple[str, str], int]:
        """Return how many acknowledged numbers each group still has to get."""
        numbers = {
            (name, group): self.streams[name].missing(group) for name in self.groups for group in self.groups[name]
        }
        return {reader: len(missing) for reader, missing in numbers.items() if missing}

    def faults(self) -> list[Fault]:
        """Return every promise that was broken, one row for each kind."""
        found = []
        for name, groups in self.groups.items():
            stream = self.streams[name]
            for group in groups:
                got = stream.got[group]
                kinds = {
                    "acknowledged and lost": stream.missing(group),
                    "delivered though never sent": got - stream.attempted,
                    "delivered though rolled back": got & stream.taken_back,
                }
                found += [Fault(name, group, what, len(n), min(n)) for what, n in kinds.items() if n]
            if stream.early:
                found.append(Fault(name, "", "delivered before its time", stream.early, -1))
        for group in sorted({group for group, *_ in self.disorder}):
            mine = [row for row in self.disorder if row[0] == group]
            found.append(Fault("ordered", group, f"after {mine[0][3]} of key {mine[0][1]}", len(mine), mine[0][2]))
        return found
