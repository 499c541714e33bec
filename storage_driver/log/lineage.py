"""The history of this log: epochs (lines of history), runs (openings of the store), its landing zone.

Every opening appends a run at the recovered end before the first append. No rule here uses a clock.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from storage_driver.errors import StateDamaged, StoreRefused
from storage_driver.files.state_file import StateFile
from storage_driver.named_tuple import NamedTuple

LAYOUT = 1
Pairs = Sequence[tuple[int, int]]
Switches = Sequence[tuple[int, tuple[str, ...]]]
"""(log offset, topics): from there on the records of these topics travel to the centre apart from the log."""
RUNS_KEPT = TERMS_KEPT = EPOCHS_KEPT = 1024
ALONE_KEPT = 64


class CutTold(NamedTuple):
    """What a member of a group gave up of the log: [start, end) of an epoch, because another leader had other bytes."""

    member: str
    epoch: int
    start: int
    end: int
    at_ms: int
    messages: int


class AloneRange(NamedTuple):
    """[start, end) of the log was acknowledged by this disk alone, by order of a person; `end` None: it goes on."""

    start: int
    end: int | None
    at_ms: int  # when it was ordered


class Lineage:
    """The identity of this log, kept in `rocketbox/identity.json`."""

    def __init__(self, file: StateFile, new_id: Callable[[], int]) -> None:
        self.epochs: list[tuple[int, int]] = []  # (epoch, log offset where it begins)
        self.runs: list[tuple[int, int]] = []  # (run, log offset where it began)
        self.terms: list[tuple[int, int]] = []  # (term, log offset where it began), of a log that others share
        self.landing: str | None = None  # hex, the landing zone that this box ships to
        self.express: list[tuple[int, tuple[str, ...]]] = []  # as `Switches`, ascending
        self.cuts: list[CutTold] = []  # of all members, as far as a leader was told; the log keeps them, not the file
        self.alone: list[AloneRange] = []  # the newest last
        self.alone_told: list[AloneRange] = []  # of all members, as cuts
        self.damage: str | None = None  # why the file found could not be used
        self._file, self._new_id = file, new_id

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self.epochs[-1][0]

    @property
    def run(self) -> int:
        """This opening of the store."""
        return self.runs[-1][0]

    @property
    def term(self) -> int:
        """The newest term, 0 of a log that nobody shares."""
        return self.terms[-1][0] if self.terms else 0

    def load(self) -> None:
        """Read the file; a damaged one is noted and counts as missing. Raises StoreRefused for a newer layout."""
        try:
            found = self._file.load()
            if found is None:
                return
            layout = int(found["layout"])
            if layout > LAYOUT + 1:
                raise StoreRefused(
                    f"{self._file.path}: layout {layout}, this program reads up to {LAYOUT + 1}: update it"
                )
            epochs, runs, terms = _pairs(found["epochs"]), _pairs(found["runs"]), _pairs(found.get("terms", []))
            landing = found.get("landing")
            alone, express = [_alone(row) for row in found.get("alone", [])], switches_of(found.get("express", []))
            if not epochs or (landing is not None and not isinstance(landing, str)):
                raise ValueError("no epoch")
        except (StateDamaged, ValueError, TypeError, KeyError, AttributeError) as exc:
            self.damage = f"{self._file.path.name}: {exc}"
            return
        self.epochs, self.runs, self.terms, self.landing, self.alone = epochs, runs, terms, landing, alone
        self.express = express

    def begin_run(self, first: int, end: int) -> None:
        """Append this run at the recovered end and make it durable. Raises OSError."""
        if not self.epochs:
            self.epochs = [(self._new_id(), first if end > first else 0 if end == 0 else end)]
        self._append_run(self.runs, end)
        self.express = [switch for switch in self.express if switch[0] <= end]  # the disk may have lost more
        self.save()

    def _append_run(self, before: Iterable[tuple[int, int]], log_offset: int) -> None:
        self.runs = list(rising([*before, (self._new_id(), log_offset)])[-RUNS_KEPT:])

    def fork(self, log_offset: int) -> None:
        """Begin a new epoch at a log offset and make it durable. Raises OSError."""
        kept = [(epoch, origin) for epoch, origin in self.epochs if origin < log_offset]
        self.epochs = [*kept, (self._new_id(), log_offset)][-EPOCHS_KEPT:]
        self.save()

    def adopt(self, epochs: Sequence[tuple[int, int]]) -> None:
        """Take over the epochs of the log that this one, which is empty, becomes a copy of. Raises OSError."""
        self.epochs, self.express = list(epochs), []
        self.save()

    def begin_term(self, term: int, log_offset: int) -> None:
        """Note the term of what is appended from a log offset on, durably. Raises OSError, ValueError if it falls."""
        if term <= self.term:
            raise ValueError(f"term {term} after term {self.term}")
        self.terms = [*self._terms_below(log_offset), (term, log_offset)][-TERMS_KEPT:]
        self.save()

    def _terms_below(self, log_offset: int) -> list[tuple[int, int]]:
        """Return the terms that have records below a log offset."""
        return [(term, began) for term, began in self.terms if began < log_offset]

    @property
    def is_alone(self) -> bool:
        """Whether this disk acknowledges alone, as far as it is noted."""
        return bool(self.alone) and self.alone[-1].end is None

    def note_alone(self, told: Iterable[AloneRange]) -> None:
        """Know of what one disk, this or another, acknowledged alone and does no longer; the newest stay."""
        ended = (each for each in (*self.alone, *told) if each.end is not None)
        self.alone_told = sorted({*self.alone_told, *ended}, key=lambda each: each.at_ms)[-ALONE_KEPT:]

    def begin_alone(self, log_offset: int, at_ms: int) -> None:
        """Note from where on this disk acknowledges alone, durably. Raises OSError."""
        if not self.is_alone:
            self.alone = [*self.alone[-(ALONE_KEPT - 1) :], AloneRange(log_offset, None, at_ms)]
            self.save()

    def end_alone(self, log_offset: int) -> None:
        """Note up to where it did; a range in which nothing was acknowledged is forgotten. Raises OSError."""
        if self.is_alone:
            *before, last = self.alone
            self.alone = [*before, last._replace(end=log_offset)] if log_offset > last.start else before
            self.save()
            self.note_alone(())

    def land(self, landing: str) -> None:
        """Remember the landing zone and make it durable. Raises OSError."""
        self.landing = landing
        self.save()

    def switch_express(self, log_offset: int, topics: tuple[str, ...], *, first: int = 0) -> None:
        """Have the records of these topics travel apart from a log offset on, durably; no others do then.

        first: where the log begins; what was switched below it, and again there, is forgotten. Raises OSError.
        """
        now = self.express[-1][1] if self.express else ()
        if now == topics:
            return
        kept = [switch for switch in self.express if switch[0] < log_offset]
        while len(kept) > 1 and kept[1][0] <= first:
            del kept[0]
        self._save_express([*kept, (log_offset, topics)])

    def _save_express(self, switches: list[tuple[int, tuple[str, ...]]]) -> None:
        before, self.express = self.express, switches
        try:
            self.save()
        except OSError:
            self.express = before  # who tries again writes again
            raise

    def add_older_express(self, switches: Switches) -> None:
        """Note switches that were kept elsewhere, those below all that is known here. Raises OSError."""
        older = [switch for switch in switches if not self.express or switch[0] < self.express[0][0]]
        if older:
            self._save_express([*older, *self.express])

    def take_over(
        self, epochs: Pairs, runs: Pairs, landing: str | None, log_offset: int, express: Switches | None = None
    ) -> None:
        """Go on with the history that another box wrote of this log; this box writes from a log offset on.

        express: None where the other did not say. Raises OSError.
        """
        self.epochs, self.landing = list(epochs), landing
        self.express = self.express if express is None else list(express)
        self._append_run(runs, log_offset)
        self.save()

    def save(self) -> None:
        """Write the identity. Raises OSError."""
        value = {"layout": LAYOUT, "epochs": self.epochs, "runs": self.runs, "landing": self.landing}
        more = {"terms": self.terms, "alone": self.alone, "express": self.express}
        self._file.save({**value, **{name: rows for name, rows in more.items() if rows}})


def rising(runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the runs that began in the log as it is: one that began above a later one has no byte in it since a cut.

    Others refuse a list that does not rise.
    """
    found = list[tuple[int, int]]()
    for row in runs:
        while found and found[-1][1] > row[1]:
            found.pop()
        found.append(row)
    return tuple(found)


def switches_of(value: Any) -> list[tuple[int, tuple[str, ...]]]:
    """Return switches as they were written. Raises ValueError, TypeError."""
    switches = [(at, tuple(topics)) for at, topics in value]
    if any(type(at) is not int or not all(isinstance(topic, str) for topic in topics) for at, topics in switches):
        raise ValueError("a switch has a log offset and topics")
    return switches


def _alone(row: Any) -> AloneRange:
    start, end, at_ms = row
    if type(start) is not int or type(at_ms) is not int or not (end is None or type(end) is int):
        raise ValueError("a range that was acknowledged alone has whole numbers")
    return AloneRange(start, end, at_ms)


def _pairs(value: Any) -> list[tuple[int, int]]:
    pairs = [(a, b) for a, b in value]
    if any(type(a) is not int or type(b) is not int or not 0 < a < 1 << 63 or b < 0 for a, b in pairs):
        raise ValueError("identifiers must be positive 63-bit numbers")
    return pairs
