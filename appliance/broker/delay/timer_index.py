"""Due time → log offset of every timed message, sorted, mostly on disk.

New entries are kept in a heap; when it is full it becomes a sorted run, a file that is written once and read from the
front, a block at a time. What is due is the smallest of the heap and of all fronts. Memory is the heap and one block
per run, whatever waits. The runs can be rebuilt from the log; `state()` says from which queue offset on.

An entry is 29 bytes that sort as they are: due ms i64, kind u8 (0 a recall, 1 a message), log offset i64, size i32,
hash of topic and key 8 bytes; all big-endian.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path
from struct import Struct

from storage_driver.files.disk import Disk
from storage_driver.files.unreadable import only_unreadable
from storage_driver.named_tuple import NamedTuple

ENTRY = Struct(">qBqi8s")
RECALL, MESSAGE = 0, 1
HEAP_ENTRIES = 32_768  # 2.3 MB; a run of them is written in about 30 ms
BLOCK_ENTRIES = 128
MOST_RUNS = 1000  # 32 million waiting messages


class RunDamaged(Exception):
    """A run cannot be read: what it held has to be sorted again from the log."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class TimerEntry(NamedTuple):
    """One waiting message, or a recall of one."""

    due_ms: int
    kind: int
    log_offset: int
    size: int
    name: bytes

    def encode(self) -> bytes:
        return ENTRY.pack(*self)


def name_of(topic: str, unique_key: str) -> bytes:
    """Return the hash by which a recall finds its message."""
    return hashlib.blake2b(f"{topic}+{unique_key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


class Run:
    """One sorted file; entries below `consumed` are done, those below `taken` handed out, none is below `floor`."""

    def __init__(self, number: int, count: int, floor: int, consumed: int = 0) -> None:
        self.number, self.count, self.floor = number, count, floor
        self.consumed = self.taken = consumed
        self.block = b""
        self.block_at = 0  # the entry with which the block begins


class IndexState(NamedTuple):
    """What must be on disk for a restart."""

    spilled_to: int = 0  # wheel queue offset: older messages are in runs
    indexed_to: int = 0  # older messages are in runs or were in the heap
    emitted_ms: int = 0  # the heap held nothing that was due then
    runs: Sequence[list[int]] = ()  # number, count, floor, consumed

    def to_json(self) -> dict[str, object]:
        names = ("spilledTo", self.spilled_to), ("indexedTo", self.indexed_to), ("emittedMs", self.emitted_ms)
        return {"layout": 1, **dict(names), "runs": self.runs}

    @classmethod
    def from_json(cls, stored: object, end: int = 1 << 63) -> "IndexState":
        """Return a stored state, an empty one for None, another layout, or one beyond the end of the queue.

        The index is rebuilt then.
        """
        if not isinstance(stored, dict) or stored.get("layout") != 1:
            return cls()
        try:
            runs = [[int(number) for number in run] for run in stored["runs"]]
            if any(len(run) != 4 for run in runs):
                return cls()
            state = cls(int(stored["spilledTo"]), int(stored["indexedTo"]), int(stored["emittedMs"]), runs)
            return state if max(state.spilled_to, state.indexed_to) <= end else cls()
        except (KeyError, TypeError, ValueError):
            return cls()


class TimerIndex:
    """The sorted entries. Owned by one task; `spill` and `take_due` read and write files and belong in a thread."""

    def __init__(self, disk: Disk, folder: Path, state: IndexState, *, heap_entries: int = HEAP_ENTRIES) -> None:
        self.spilled_to, self.indexed_to, self.emitted_ms = state.spilled_to, state.indexed_to, state.emitted_ms
        self._disk, self._folder, self._heap_entries = disk, folder, heap_entries
        self._heap: list[bytes] = []
        self._taken_from_heap: list[bytes] = []
        self._runs = {n: Run(n, count, floor, consumed) for n, count, floor, consumed in state.runs}
        self._fronts: list[tuple[bytes, int]] | None = None  # smallest entry of each run; None: not read yet
        self.fell_behind = (state.indexed_to, state.emitted_ms)  # what the heap had before the restart

    def begin_anew(self) -> None:
        """Forget all entries, not what was delivered: they are to be added again from queue offset 0 on."""
        self._heap, self._taken_from_heap, self._runs, self._fronts = [], [], {}, None
        self.fell_behind = (self.indexed_to, self.emitted_ms)
        self.spilled_to = 0

    def __len__(self) -> int:
        return len(self._heap) + sum(run.count - run.taken for run in tuple(self._runs.values()))

    @property
    def full(self) -> bool:
        """The index is full until something was delivered."""
        return len(self._runs) >= MOST_RUNS

    @property
    def heap_full(self) -> bool:
        return len(self._heap) >= self._heap_entries

    def add(self, entry: TimerEntry, queue_offset: int) -> None:
        """Take in the entry of the message at a wheel queue offset; what was delivered before a restart is left out."""
        was_indexed_to, emitted_ms = self.fell_behind
        if queue_offset >= was_indexed_to or entry.due_ms > emitted_ms:
            heappush(self._heap, entry.encode())
            self.emitted_ms = min(self.emitted_ms, entry.due_ms - 1)  # it came late: a stop now must not forget it
        self.indexed_to = max(self.indexed_to, queue_offset + 1)

    def spill(self) -> None:
        """Write the heap as a run. Call between rounds: nothing may be taken and not done. Raises OSError."""
        entries, number = sorted(self._heap), max(self._runs, default=0) + 1
        self._disk.make_folder(self._folder)
        path = self._path(number)
        self._disk.remove(path)
        file = self._disk.open(path, create=True)
        file.write([b"".join(entries)], 0)
        file.sync()
        self._disk.sync_folder(self._folder)
        floor = min((ENTRY.unpack(entry)[2] for entry in entries), default=0)
        self._runs[number] = Run(number, len(entries), floor)
        self._heap.clear()
        self.spilled_to = self.indexed_to
        if entries and self._fronts is not None:
            heappush(self._fronts, (entries[0], number))

    def next_due_ms(self) -> int | None:
        """Return when the next entry is due, None when there is none. Reads files the first time."""
        first = self._first()
        return None if first is None else int.from_bytes(first[:8], "big", signed=True)

    def take_due(self, now_ms: int, most: int) -> list[TimerEntry]:
        """Return up to `most` due entries, the earliest first; they count as waiting until `done`. Raises OSError."""
        limit = ENTRY.pack(now_ms + 1, 0, 0, 0, b"")
        return self._take_while(lambda first: first < limit, most)

    def take_beyond(self, limit_ms: int, most: int) -> list[TimerEntry]:
        """Return up to `most` entries that are due after a moment, as `take_due`: those in the heap, then in runs.

        Of runs only when nothing is due before. Raises OSError.
        """
        limit = ENTRY.pack(limit_ms + 1, 0, 0, 0, b"")
        beyond = sorted(entry for entry in self._heap if entry >= limit)[:most]
        if beyond:
            gone = set(beyond)
            self._heap = [entry for entry in self._heap if entry not in gone]
            heapify(self._heap)
            self._taken_from_heap += beyond
            return [TimerEntry(*ENTRY.unpack(entry)) for entry in beyond]
        return self._take_while(lambda first: first >= limit, most)

    def _take_while(self, wanted: Callable[[bytes], bool], most: int) -> list[TimerEntry]:
        """Return up to `most` entries, the earliest first, up to one that is not wanted. Raises OSError."""
        taken: list[TimerEntry] = []
        while len(taken) < most and (first := self._first()) is not None and wanted(first):
            taken.append(TimerEntry(*ENTRY.unpack(self._pop(first))))
        return taken

    def done(self, up_to_ms: int) -> None:
        """All that was taken is delivered, and with it all that is due up to a moment."""
        self._taken_from_heap.clear()
        for run in self._runs.values():
            run.consumed = run.taken
        self.emitted_ms = max(self.emitted_ms, up_to_ms)

    def put_back(self) -> None:
        """What was taken was not delivered: it waits again."""
        for entry in self._taken_from_heap:
            heappush(self._heap, entry)
        self._taken_from_heap.clear()
        for run in self._runs.values():
            run.taken = run.consumed
        self._fronts = None

    def state(self) -> IndexState:
        """Return what to save. Call between rounds."""
        runs = [[run.number, run.count, run.floor, run.consumed] for run in self._live_runs()]
        return IndexState(self.spilled_to, self.indexed_to, self.emitted_ms, runs)

    def remove_emptied(self) -> None:
        """Remove the runs that a state on disk no longer names. Raises OSError."""
        for number in [run.number for run in self._runs.values() if run.consumed == run.count]:
            del self._runs[number]
            self._disk.remove(self._path(number))

    def remove_strangers(self) -> None:
        """Remove files of runs that were never written down. Raises OSError."""
        known = {self._path(number).name for number in self._runs}
        for facts in self._disk.list(self._folder):
            if facts.name not in known:
                self._disk.remove(self._folder / facts.name)

    def floor(self) -> int | None:
        """Return the log offset below which nothing waits, None when nothing waits at all."""
        floors = [run.floor for run in self._live_runs()]
        offsets = (entry[9:17] for entries in (self._heap, self._taken_from_heap) for entry in entries)
        if (lowest := min(offsets, default=None)) is not None:  # big-endian: bytes sort as the numbers
            floors.append(int.from_bytes(lowest, "big"))
        return min(floors, default=None)

    def _live_runs(self) -> Iterable[Run]:
        return (run for run in self._runs.values() if run.consumed < run.count)

    def _first(self) -> bytes | None:
        if self._fronts is None:
            self._fronts = [(entry, run.number) for run in self._runs.values() for entry in self._front(run)]
            heapify(self._fronts)
        candidates = [*self._heap[:1], *(front[0] for front in self._fronts[:1])]
        return min(candidates, default=None)

    def _pop(self, first: bytes) -> bytes:
        if self._heap and self._heap[0] == first:
            self._taken_from_heap.append(heappop(self._heap))
            return first
        assert self._fronts is not None
        run = self._runs[heappop(self._fronts)[1]]
        run.taken += 1
        for entry in self._front(run):
            heappush(self._fronts, (entry, run.number))
        return first

    def _front(self, run: Run) -> Iterator[bytes]:
        """Yield the first entry of a run that was not taken yet, if there is one."""
        if run.taken >= run.count:
            run.block = b""
            return
        at = (run.taken - run.block_at) * ENTRY.size
        if not 0 <= at < len(run.block):
            run.block, run.block_at, at = self._read_block(run), run.taken, 0
        yield run.block[at : at + ENTRY.size]

    def _read_block(self, run: Run) -> bytes:
        path, count = self._path(run.number), min(BLOCK_ENTRIES, run.count - run.taken)
        try:
            block = self._disk.open(path, read_only=True).read(count * ENTRY.size, run.taken * ENTRY.size)
        except OSError as exc:
            if not isinstance(exc, FileNotFoundError):
                only_unreadable(exc)
            raise RunDamaged(str(path), str(exc)) from exc
        if len(block) < count * ENTRY.size:
            raise RunDamaged(str(path), f"it ends before entry {run.taken + count} of {run.count}")
        return block

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}"
