"""The disk of a simulated member: a vote file in two slots, a term table, a log of which a part is synced."""

from bisect import bisect_left
from random import Random

from storage_driver.consensus import vote_file
from storage_driver.consensus.effects import Start, TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.terms import row_at, rows_below
from storage_driver.consensus.vote_file import decode_slot, encode_slot, newest
from tests.group_sim.records import Fault, SimRecord


class SimDisk:
    """What survives a power cut, and what does not yet."""

    def __init__(self, table: TermTable, first: int = 0) -> None:
        self.hard = HardState(filling=True)
        self.slots = [encode_slot(1, self.hard), encode_slot(2, self.hard)]
        self.sequence = 2
        self.table = table
        self.log: list[SimRecord] = []
        self.ends: list[int] = []
        self.first = first
        self.synced = 0  # records, not bytes
        self.committed = first  # as it was saved, some time ago
        self.cut_to: int | None = None  # the journal of a cut

    @property
    def end(self) -> int:
        """The log offset just past the last record."""
        return self.ends[-1] if self.ends else self.first

    def synced_end(self) -> int:
        """The log offset below which everything survives."""
        return self.ends[self.synced - 1] if self.synced else self.first

    def save_vote(self, state: HardState) -> None:
        """Write the older slot and sync."""
        self.sequence += 1
        self.slots[(self.sequence + 1) % 2] = encode_slot(self.sequence, state)
        self.hard = state

    def tear_vote(self, state: HardState, pick: Random) -> None:
        """Lose the power while the older slot is being written."""
        slot, new = (self.sequence + 2) % 2, encode_slot(self.sequence + 1, state)
        at = pick.randrange(len(new) + 1)
        self.slots[slot] = new[:at] + self.slots[slot][at:]

    def damage_vote(self, left: int | None) -> None:
        """Lose a slot, or both, and load what is `left`, as VoteFile does; the log stays."""
        found = decode_slot(self.slots[left]) if left is not None else None
        _, before = found or (0, HardState())
        least_term = max((row.term for row in self.table.rows), default=0)
        self.hard = vote_file.after_damage(before, least_term)
        self.slots = [encode_slot(self.sequence + more, self.hard) for more in (1, 2)]

    def append(self, record: SimRecord) -> None:
        """Append a record, not synced yet. Raises Fault when it does not continue the log."""
        if record.start != self.end or record.before != (self.log[-1].number if self.log else 0):
            raise Fault(f"log matching: {record} behind {self.log[-1] if self.log else self.first}")
        self.log.append(record)
        self.ends.append(record.end)

    def index(self, log_offset: int) -> int:
        """Return how many records end at or below a log offset. Raises Fault inside of a record."""
        if log_offset <= self.first:
            return 0
        at = bisect_left(self.ends, log_offset)
        if at == len(self.ends) or self.ends[at] != log_offset:
            raise Fault(f"{log_offset} is not the end of a record")
        return at + 1

    def slice(self, start: int, end: int, most: int) -> tuple[SimRecord, ...]:
        """Return whole records from a log offset on."""
        at = self.index(start)
        found = self.log[at : at + most]
        return tuple(record for record in found if record.end <= end)

    def cut(self, log_offset: int) -> None:
        """Drop what is above."""
        count = self.index(log_offset)
        del self.log[count:], self.ends[count:]
        self.synced = min(self.synced, count)

    def power_cut(self, pick: Random) -> None:
        """Lose what is not synced, or a part of it."""
        self.synced = pick.randint(self.synced, len(self.log)) if pick.random() < 0.5 else self.synced
        del self.log[self.synced :], self.ends[self.synced :]

    def recover(self) -> Start:
        """Return what a start finds. Raises Fault when the table does not say the terms of the records."""
        if self.cut_to is not None:
            self.cut(self.cut_to)
            self.cut_to = None
        found = newest(self.slots)
        if found is None:
            raise Fault("both slots of the vote file are torn")
        self.sequence, self.hard = found
        end = self.end
        rows = rows_below(self.table.rows, end)
        for record in self.log:
            if row_at(rows, record.start).term != record.term:
                raise Fault(f"{record} is of term {row_at(rows, record.start).term} by the table {self.table.rows}")
        return Start(self.hard, self.table, self.first, end, min(self.committed, end))
