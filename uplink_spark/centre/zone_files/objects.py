"""A landing zone in an object store: one PUT a pack, one immutable manifest object a commit.

The object's name is the fence: of two writers only one can create the next seq (If-None-Match: *), and the loser stops.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from io import BytesIO

import trio

from uplink_spark.centre.histogram import Histogram
from uplink_spark.centre.zone_files.adopt import entries_of
from uplink_spark.centre.zone_files.bucket_store import BucketStore
from uplink_spark.centre.zone_files.landing import RESTORE, Covering, LandedBefore, NewPiece
from uplink_spark.centre.zone_files.records import (
    QUARANTINE_FILES,
    QUARANTINE_OF_BOX,
    STATUS_DAYS,
    CentreRecords,
    day_of,
    status_line,
)
from uplink_spark.errors import LandingError, ManifestDamaged, PieceDamaged
from uplink_spark.wire.failpoints import Failpoint, no_failpoint
from uplink_spark.wire.frames import Hello, Status
from uplink_spark.zone.manifest import (
    DAY_MS,
    LANDING_NAME,
    ManifestEntry,
    Placement,
    Slice,
    Zone,
    decode_zone,
    encode_items,
    encode_mark,
    entry_of,
    file_head,
    first_seq_of,
    manifest_folder,
    manifest_path,
    pack_path,
    read_head,
    read_items,
    shard_of,
    state_seq_of,
)
from uplink_spark.zone.rollup import REWRITTEN_COMMITS, RollUp, chain_of, rolled_folder

STATE_ENTRIES, STATE_COMMITS = 4096, 256  # a state object after so many bounds the replay at start
STATES_LOOKED_BACK = 2  # a commit may be larger than what is between two states
STATUS_S = 60
STATUS_LINES = 5000  # of a shard that wait; the oldest go
log = logging.getLogger("uplink_spark.gateway")


def open_object_zone(store: BucketStore, shards: int) -> Zone:
    """Return the landing zone, made there if it is new. Raises LandingError."""
    try:
        data = store.get(LANDING_NAME)
        if data is None:
            store.create(LANDING_NAME, Zone(secrets.token_bytes(16), shards).encode())
            log.warning("landing zone %s is new; if it should exist, is the URL right?", store.place)
            data = store.get(LANDING_NAME)
        return decode_zone(data or b"")
    except (OSError, ManifestDamaged) as error:
        raise LandingError(f"landing zone {store.place}: {error}") from error


class ObjectShardWriter:
    """The writer of a shard in an object store; the same calls as landing.ShardWriter."""

    def __init__(self, store: BucketStore, shard: int, *, step: Failpoint = no_failpoint) -> None:
        self._store, self.shard, self._step = store, shard, step
        self.next_seq = self.landed_ms = self._state_seq = self._commits = 0
        self._cover: Covering
        self._own, self._packs = secrets.token_hex(4), 0  # in the names of our packs: no loser of a race overwrites one
        self.syncs = Histogram()  # of the PUTs of packs
        self._rollup = RollUp(shard, store, rewritten_commits=REWRITTEN_COMMITS)

    def open(self, cover: Covering) -> None:
        """Load the newest state that is whole and every later manifest object.

        What whole packs hold after the last entry gets its entries again.
        """
        self._cover = cover
        begin = self._begin_of_newest()
        firsts, states = self._load_newest(begin)
        if begin and not self.next_seq:  # no state is there, or none is whole
            firsts, states = self._load_newest(0)
        oldest = min(firsts, default=0)
        if self.next_seq < oldest:
            what = f"shard {self.shard:04x} of {self._store.place}: entries below {oldest} are missing"
            raise LandingError(f"{what} and no state is intact; restore {manifest_path(self.shard, oldest, 'state')}")
        begun, read = self.next_seq, list[Sequence[ManifestEntry]]()
        while (data := self._store.get(manifest_path(self.shard, self.next_seq))) is not None:
            part = self._whole(data)
            read.append(part.entries)
            self._commits += 1
            for entry in part.entries:
                self.landed_ms = max(self.landed_ms, entry.landed_ms)
                cover.note(entry)
            self.next_seq = part.next_seq
        self._refuse_gap([f"seq {seq}" for seq in (*firsts, *states) if seq > self.next_seq])
        self._begin_rollup(begun, read)
        self._adopt()

    def _begin_of_newest(self) -> int:
        """Return a seq behind which a state should be: a day has some ten thousand objects, too many to list all."""
        chain = chain_of(self._store.names(rolled_folder(self.shard)))
        return max(0, chain[-1][0] - STATES_LOOKED_BACK * STATE_ENTRIES) if chain else 0

    def _load_newest(self, begin: int) -> tuple[list[int], list[int]]:
        """Load a state; return the first seqs of manifest objects, and the states, of those named behind `begin`."""
        names = self._store.names(manifest_folder(self.shard), after=f"{begin:020d}" if begin else "")
        firsts = [first for first in map(first_seq_of, names) if first is not None]
        states = sorted(seq for seq in map(state_seq_of, names) if seq is not None)
        oldest = min(firsts, default=0)
        self._load_state([seq for seq in states if seq >= oldest])
        return firsts, states

    def _begin_rollup(self, begun: int, read: Sequence[Sequence[ManifestEntry]]) -> None:
        try:
            self._rollup.begin(begun, self.next_seq)
        except OSError as error:
            raise LandingError(f"landing zone {self._store.place}: {error}") from error
        for entries in read:
            self._rollup.note(entries)

    def _whole(self, data: bytes) -> Slice:
        """Return what the next manifest object holds: it was written in one piece, so a fault in it is no torn tail."""
        try:
            part = read_items(data[read_head(data, self.shard, self.next_seq) :], self.next_seq)
            if part.fault is not None or part.pending or not part.entries:
                raise ManifestDamaged(f"has no complete commit: {part.fault or 'its end is missing'}")
        except ManifestDamaged as error:
            name = f"{self._store.place}: {manifest_path(self.shard, self.next_seq)}"
            raise LandingError(f"{name}: {error}; {RESTORE}") from error
        return part

    def _refuse_gap(self, found: Sequence[str]) -> None:
        """Raise LandingError if what was receipted is after the last entry: its numbers must not be given again."""
        if found:
            name = manifest_path(self.shard, self.next_seq)
            text = f"{self._store.place}: {name} is missing, and {found[0]} follows it"
            raise LandingError(f"{text}; restore it from a copy of the landing zone")

    def _adopt(self) -> None:
        """Make the manifest objects of the packs after the last one again.

        Such a pack is of the commit that did not end, or of commits whose objects were lost after readers had seen
        them. Raises LandingError where the packs do not follow one another: more is gone.
        """
        behind, draft, seq, commits = (
            self._packs_behind(),
            self._cover.draft(),
            self.next_seq,
            list[list[ManifestEntry]](),
        )
        while attempts := behind.pop(seq, []):
            written_ms, pack = max((self._store.written_ms(name), name) for name in attempts)  # the others failed
            place = Placement(seq, pack, 0, 0, 0, max(self.landed_ms, written_ms))
            data = BytesIO(self._store.get(pack) or b"")
            try:
                entries = entries_of(f"{self._store.place}: {pack}", data, place, draft)
            except PieceDamaged as error:
                log.warning("pack not taken reason=%s: left by an unfinished commit", error)
                break
            if not entries:
                break
            commits.append(entries)
            seq += len(entries)
        self._refuse_gap([f"pack {at:020d}" for at in sorted(behind)])
        for entries in commits:
            if not self._publish(entries):
                raise self._other()
            self.landed_ms = entries[-1].landed_ms
            for entry in entries:
                self._cover.note(entry)
            log.warning("pack %s has its entries again, seq %d..%d", entries[0].pack, entries[0].seq, entries[-1].seq)

    def _packs_behind(self) -> dict[int, list[str]]:
        """Return the packs of no manifest object by their first seq."""
        folder, since = f"pack/{self.shard:04x}", pack_path(self.shard, self.landed_ms, 0).split("/")[2]
        found: dict[int, list[str]] = {}
        for day in self._store.names(folder):
            newer = self._store.names(f"{folder}/{day}", after=f"{self.next_seq:020d}") if day >= since else []
            for name in newer:
                if name[:20].isdigit() and int(name[:20]) >= self.next_seq:
                    found.setdefault(int(name[:20]), []).append(f"{folder}/{day}/{name}")
        return found

    def _load_state(self, seqs: list[int]) -> None:
        for seq in reversed(seqs):
            try:
                self.landed_ms = self._cover.load(self._store.get(manifest_path(self.shard, seq, "state")) or b"", seq)
                self.next_seq = self._state_seq = seq
                return
            except ManifestDamaged:
                continue

    def commit(self, pieces: Sequence[NewPiece], now_ms: int) -> list[ManifestEntry]:
        """Land pieces: pack first, then the manifest object that makes them visible.

        Raises OSError, LandingError, and LandedBefore when a commit that failed had landed: nothing of these has then.
        """
        self.landed_ms = max(self.landed_ms, now_ms)
        self._put_state()
        pack = pack_path(self.shard, self.landed_ms, self.next_seq)
        self._packs += 1
        pack = pack.replace(".pack", f"-{self._own}{self._packs:08x}.pack")
        entries: list[ManifestEntry] = []
        offset = 0
        for piece in pieces:
            for start, end in piece.parts:
                place = Placement(self.next_seq + len(entries), pack, offset, start, end, self.landed_ms, piece.heals)
                entries.append(entry_of(piece.header, len(piece.container), place, piece.gap))
            offset += len(piece.container)
        with self.syncs.measured():
            self._store.put(pack, b"".join(piece.container for piece in pieces))
        self._step("G3")
        if not self._publish(entries):
            raise self._taken(entries)
        self._step("G5")
        return entries

    def _put_state(self) -> None:
        """Put what the shard holds of each box, where a start would else read much."""
        if self.next_seq - self._state_seq >= STATE_ENTRIES or self._commits >= STATE_COMMITS:
            self._store.put(manifest_path(self.shard, self.next_seq, "state"), self._cover.encode(self.next_seq))
            self._state_seq, self._commits = self.next_seq, 0

    def _publish(self, entries: Sequence[ManifestEntry]) -> bool:
        """Make the next manifest object; False where there is another one."""
        end_seq = self.next_seq + len(entries)
        data = file_head(self.shard, self.next_seq) + encode_items(entries) + encode_mark(end_seq)
        if not self._store.create(manifest_path(self.shard, self.next_seq), data):
            return False
        self.next_seq = end_seq
        self._commits += 1
        self._rollup.note(entries)
        return True

    def _taken(self, lost: Sequence[ManifestEntry]) -> LandedBefore | LandingError:
        """Return who has the next seq: a commit of ours whose answer was lost, or another gateway.

        The pack that was put for nothing goes, so that no later start takes it for what has that seq.
        """
        data = self._store.get(manifest_path(self.shard, self.next_seq)) or b""
        part = read_items(data[read_head(data, self.shard, self.next_seq) :], self.next_seq)
        if part.entries and lost[0].pack not in {entry.pack for entry in part.entries}:
            self._store.delete(lost[0].pack)
        if part.entries and all(f"-{self._own}" in entry.pack for entry in part.entries):
            self.next_seq = part.next_seq
            self._rollup.note(part.entries)
            return LandedBefore(part.entries)
        return self._other()

    def _other(self) -> LandingError:
        return LandingError(
            f"shard {self.shard:04x}: another gateway wrote seq {self.next_seq}; this one stops: "
            "a shard has one gateway"
        )

    def close(self) -> None:
        """Nothing is held open."""


class ObjectRecords(CentreRecords):
    """The small files beside them, in the same store."""

    def __init__(self, store: BucketStore, shards: int) -> None:
        self._store, self._shards = store, shards
        self._lines: dict[int, deque[str]] = {}
        self._unwritten: dict[str, bytes] = {}  # by name: a repeat replaces what a PUT without an answer has written
        self._forgot = ""  # the day on which old lines were removed

    def read(self, path: str) -> bytes | None:
        return self._store.get(path)

    def replace(self, path: str, data: bytes) -> None:
        self._store.put(path, data)

    def delete(self, path: str) -> None:
        self._store.delete(path)

    def names(self, folder: str) -> list[str]:
        return self._store.names(folder)

    def read_part(self, path: str, at: int, length: int) -> bytes:
        data = self._store.get(path, at, length)
        if data is None:
            raise FileNotFoundError(path)
        return data

    def quarantine(self, box: str, container: bytes, now_ms: int) -> str:
        """Keep refused bytes for a person to look at and return their path; the oldest make room."""
        path = f"quarantine/{now_ms:014d}-{box}-{secrets.token_hex(3)}.piece"
        self._store.put(path, container)
        kept = sorted(self._store.names("quarantine"))
        own = [name for name in kept if name[15:-13] == box]  # between the time and what makes the name its own
        for name in {*kept[:-QUARANTINE_FILES], *own[:-QUARANTINE_OF_BOX]}:
            self._store.delete(f"quarantine/{name}")
        return path

    def append_status(self, hello: Hello, status: Status, now_ms: int) -> None:
        """Collect lines; keep_status writes them."""
        lines = self._lines.setdefault(shard_of(hello.box, self._shards), deque(maxlen=STATUS_LINES))
        lines.append(status_line(hello, status, now_ms))

    async def keep_status(self, now_ms: Callable[[], int]) -> None:
        """Write one object a minute and shard until cancelled."""
        while True:
            await trio.sleep(STATUS_S)
            await self.write_status(now_ms())

    async def write_status(self, now_ms: int) -> None:
        """Write what was collected; what could not be written before comes first, under the name it had then.

        On a day's first call the lines of more than 30 days ago go.
        """
        if not self._unwritten:
            for number, lines in self._lines.items():
                day = day_of(now_ms)
                name = f"status/{number:04x}/{day}/{day}-{now_ms:014d}.jsonl"
                self._unwritten[name] = "".join(lines).encode()
            self._lines = {}
        for name in list(self._unwritten):
            try:
                await trio.to_thread.run_sync(self._store.put, name, self._unwritten[name])
            except OSError as error:
                log.warning("status lines not written path=%s error=%s; tried again in %d s", name, error, STATUS_S)
                return
            del self._unwritten[name]
        await self._forget_status(now_ms)

    async def _forget_status(self, now_ms: int) -> None:
        if self._forgot == day_of(now_ms):
            return
        try:
            await trio.to_thread.run_sync(self._delete_status, day_of(max(0, now_ms - STATUS_DAYS * DAY_MS)))
            self._forgot = day_of(now_ms)
        except OSError as error:
            log.warning("old status lines not removed error=%s; tried again in %d s", error, STATUS_S)

    def _delete_status(self, before: str) -> None:
        for folder in (f"status/{shard:04x}" for shard in range(self._shards)):
            for day in (name for name in self._store.names(folder) if name[: len(before)] < before):
                names = (
                    [day]
                    if day.endswith(".jsonl")
                    else [f"{day}/{name}" for name in self._store.names(f"{folder}/{day}")]
                )
                for name in names:
                    self._store.delete(f"{folder}/{name}")
