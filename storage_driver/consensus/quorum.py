"""Counting: majorities, and the log offset that enough disks have."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from storage_driver.consensus.members import Members

N = TypeVar("N", int, float)


def majority(voters: int) -> int:
    """Return how many of some voters are more than half."""
    return voters // 2 + 1


def kth_largest(values: Iterable[N], k: int) -> N:
    """Return the k-th largest value: so many members are at it or above."""
    return sorted(values, reverse=True)[k - 1]


def on_majority(members: Members, synced: Mapping[str, int], copies: int) -> int:
    """Return the log offset below which a majority of the voters and so many boxes have everything on disk.

    A witness counts with the row that it keeps, for the majority alone: it has no copy of the bytes. With one box
    in the group one copy is all there can be.
    """
    by_votes = kth_largest((synced.get(name, 0) for name in members.voters), majority(len(members.voters)))
    by_copies = kth_largest((synced.get(name, 0) for name in members.boxes), min(copies, len(members.boxes)))
    return min(by_votes, by_copies)


def has_majority(members: Members, who: Iterable[str]) -> bool:
    """Return whether some members are more than half of the voters."""
    return len(set(who) & set(members.voters)) >= majority(len(members.voters))
