"""`fsck`: read-only check of a store's folder; salvage of intact records; queues and index rebuilt.

Exit codes: 0 nothing wrong, 1 something was found (or repaired), 2 the folder cannot be checked.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage_driver.errors import StorageError, StoreRefused
from storage_driver.files.checkpoint import PositionFile
from storage_driver.files.disk import Disk, RealDisk, data_pieces
from storage_driver.files.state_file import damaged_tables
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.index.index_check import IndexCheck
from storage_driver.index.index_file import IndexSize
from storage_driver.log.scan import Bad, Blank, is_filler, next_good, walk
from storage_driver.log.segment import Segment
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE
from storage_driver.queues.dispatch import is_queued
from storage_driver.queues.queue_table import load_table, table_file
from storage_driver.record import SCHEDULE_TOPIC, DispatchEntry, MessageQueue, decode_record, tags_code
from storage_driver.recovery.losses import Losses
from storage_driver.recovery.salvage import SalvageWriter
from storage_driver.recovery.salvage_quarantine import QuarantineSalvaged, quarantined_ranges, salvage_quarantine

Progress = Callable[[int, int], None]
MOST_FINDINGS = 100
SEGMENT_BYTES = 256 << 20  # of a salvaged log, where there is none to take it from
LONGEST_LEVEL_MS = 366 * 86_400_000


@dataclass(slots=True)
class Report:
    """What a check found."""

    segments: int = 0
    first: int = 0
    end: int = 0
    records: int = 0
    covered: int = 0  # filler records: ranges that were lost and covered
    queues: int = 0
    entries_checked: int = 0
    keys_checked: int = 0
    findings: list[str] = field(default_factory=list)
    more: int = 0  # findings left out
    log_only: bool = False  # queues, index and tables were not looked at

    def note(self, text: str) -> None:
        """Add a finding."""
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(text)
        else:
            self.more += 1

    def to_json(self) -> dict[str, Any]:
        """Return the form of --json."""
        return {name: getattr(self, name) for name in self.__slots__}

    def to_text(self) -> str:
        """Return the report for people."""
        lines = [f"log      {self.segments} files, offsets {self.first} to {self.end}, {self.records} records"]
        if self.log_only:
            lines.append("queues   not checked, like index and tables: a salvage reads only the log")
        else:
            lines.append(f"queues   {self.queues}, {self.entries_checked} entries checked against the log")
            lines.append(f"index    {self.keys_checked} entries checked against the log")
        if self.covered:
            lines.append(f"covered  {self.covered} ranges were lost earlier and are covered by filler")
        lines += [f"FOUND    {text}" for text in self.findings]
        if self.more:
            lines.append(f"         and {self.more} more")
        count = len(self.findings) + self.more
        lines.append(f"verdict  {f'{count} findings' if count else 'nothing wrong'}{' in the log' * self.log_only}")
        return "\n".join(lines)


def open_segments(disk: Disk, root: Path, report: Report) -> list[Segment]:
    """Open the log's files read-only and note what does not belong there."""
    segments: list[Segment] = []
    for facts in disk.list(root / "commitlog"):
        path = root / "commitlog" / facts.name
        if facts.is_folder or not facts.name.isdecimal() or facts.size == 0:
            report.note(f"commitlog/{facts.name} is not a segment")
            continue
        base = int(facts.name)
        if segments and base != segments[-1].end:
            report.note(f"commitlog/{facts.name}: begins at {base}, the file before ends at {segments[-1].end}")
        segments.append(Segment(base, facts.size, path, disk.open(path, read_only=True)))
    report.segments = len(segments)
    report.first = segments[0].base if segments else 0
    return segments


def records(segments: list[Segment], report: Report, progress: Progress) -> Iterator[tuple[Segment, DispatchEntry]]:
    """Yield every intact record of the log, noting damage and continuing behind it."""
    total, done = sum(segment.size for segment in segments), 0
    for segment in segments:
        for entry in _records_of(segment, report, is_last=segment is segments[-1]):
            yield segment, entry
            if report.records % 4096 == 0:
                progress(done + entry.log_offset + entry.size - segment.base, total)
        done += segment.size
        progress(done, total)


def _records_of(segment: Segment, report: Report, *, is_last: bool) -> Iterator[DispatchEntry]:
    at = segment.base
    while at < segment.end:
        ended: Blank | Bad | None = None
        for item in walk(segment, at):
            if isinstance(item, DispatchEntry):
                at = item.log_offset + item.size
                yield item
            else:
                ended = item
        if not isinstance(ended, Bad):
            at = segment.end
            break
        behind = next_good(segment, ended.log_offset + 1)
        if behind is None and is_last:
            _note_tail(segment, ended, report)
            break
        stop = behind if behind is not None else segment.end
        report.note(f"log {ended.log_offset} to {stop}: {ended.reason}")
        at = stop
    report.end = max(report.end, at)


def _note_tail(segment: Segment, bad: Bad, report: Report) -> None:
    torn = sum(
        len(data.strip(b"\0")) for _, data in data_pieces(segment.file, bad.log_offset - segment.base, segment.size)
    )
    if torn:
        report.note(
            f"log {bad.log_offset}: {torn} bytes of a record that was never completed; the next start cuts them"
        )


def check(root: Path, *, progress: Progress = lambda done, total: None, index_size: IndexSize | None = None) -> Report:
    """Check log, queues, index and tables of a folder, changing nothing. Raises StoreRefused, OSError."""
    disk, report = ZeroingDisk(RealDisk(), root), Report()
    if not disk.list(root):
        raise StoreRefused(f"{root} does not contain a store")
    segments = open_segments(disk, root, report)
    position_file = PositionFile(disk, root / "rocketbox" / "position")
    position = position_file.load()
    complete_to = position.queues_to if position is not None else 0
    queues = _QueueCheck(disk, root, report, complete_to)
    size = index_size or IndexSize()
    index = IndexCheck(disk, root, report.note, first=report.first, synced=position, size=size)
    for _, entry in records(segments, report, progress):
        report.records += 1
        index.expect(entry)
        if is_filler(entry):
            report.covered += 1
        elif is_queued(entry.sys_flag):
            queues.expect(entry)
    queues.finish()
    queues.tell()
    index.finish()
    report.keys_checked = index.units
    _note_lost_end(disk, root, report, complete_to)
    if position_file.damage is not None:
        report.note(f"rocketbox/{position_file.damage}")
    for name in ("config", "rocketbox"):
        for text in damaged_tables(disk, root / name):
            report.note(text)
    for name in ("identity.json", "position"):
        if segments and not disk.exists(root / "rocketbox" / name):
            report.note(
                f"rocketbox/{name} is missing (as after a restore, or from Apache's broker; a start creates it)"
            )
    for text in disk.told():
        report.note(text)
    return report


def _note_lost_end(disk: Disk, root: Path, report: Report, complete_to: int) -> None:
    """Note when files at the log's end are gone, unless a start has told of it and nothing came since."""
    if report.end >= complete_to:
        return
    losses = Losses(disk, root)
    losses.load()
    if report.segments or not losses.known_to:
        gone = f"the log ends at {report.end}, it was whole up to {complete_to} when the box saved its position"
        report.note(f"{gone}: files are gone; bring them back, or start: `rocketbox loss` then tells what was in them")


class _QueueCheck:
    """Compares queue entries with the log, a buffer of each queue at a time."""

    def __init__(self, disk: Disk, root: Path, report: Report, complete_to: int) -> None:
        self._disk, self._folder, self._report, self._complete_to = disk, root / "consumequeue", report, complete_to
        self._waiting: dict[MessageQueue, tuple[int, bytearray]] = {}
        self._next: dict[MessageQueue, int] = {}
        self._bad: dict[MessageQueue, str] = {}  # what is wrong with a queue, told once all of the log is known
        table = load_table(table_file(disk, root))
        self._listed = {row.key for row in table.rows} if table.as_of >= complete_to else None
        self._files: dict[MessageQueue, list[tuple[int, int]]] = {}  # first byte, size
        self._count = 0

    def expect(self, entry: DispatchEntry) -> None:
        """Take the next record that should have an entry."""
        if entry.log_offset >= self._complete_to:
            return  # the next start adds it
        key = MessageQueue(entry.topic, entry.queue_id)
        number = self._next.get(key, entry.queue_offset)
        if entry.queue_offset < number:
            if entry.queue_offset:
                self._bad[key] = f"{key.topic}/{key.queue_id}: number {entry.queue_offset} is used twice in the log"
                return
            self._waiting.pop(key, None)  # its topic was deleted and created again: what was before has no entries
            self._bad.pop(key, None)
        first, raw = self._waiting.setdefault(key, (entry.queue_offset, bytearray()))
        if entry.queue_offset > first + len(raw) // ENTRY_BYTES:
            self._compare(key, first, raw)
            first, raw = self._waiting[key] = (entry.queue_offset, bytearray())
        raw += ENTRY.pack(entry.log_offset, entry.size, tags_code(entry.topic, entry.properties, entry.stored_ms))
        self._next[key] = entry.queue_offset + 1
        self._count += 1
        if self._count > 100_000:
            self.finish()

    def finish(self) -> None:
        """Compare the waiting entries."""
        for key, (first, raw) in self._waiting.items():
            self._compare(key, first, raw)
        self._waiting.clear()
        self._count = 0
        self._report.queues = len(self._next)

    def tell(self) -> None:
        """Note what is wrong; a queue without files that the table does not list either was deleted."""
        for key, text in self._bad.items():
            if self._listed is None or key in self._listed or self._files.get(key):
                self._report.note(text)

    def _compare(self, key: MessageQueue, first: int, expected: bytearray) -> None:
        self._report.entries_checked += len(expected) // ENTRY_BYTES
        found = self._read(key, first * ENTRY_BYTES, len(expected))
        if found == expected or key in self._bad:
            return
        for i in range(0, len(expected), ENTRY_BYTES):
            have, want = found[i : i + ENTRY_BYTES], bytes(expected[i : i + ENTRY_BYTES])
            if have == want or _is_other_delay(key, have, want):
                continue
            shown = ENTRY.unpack(have) if len(have) == ENTRY_BYTES else "nothing"
            hole = len(have) == ENTRY_BYTES and ENTRY.unpack(have)[1] == HOLE_SIZE
            name = f"consumequeue/{key.topic}/{key.queue_id}"
            self._bad[key] = (
                f"{name}: entry {first + i // ENTRY_BYTES} is {'a hole' if hole else shown}, "
                f"the log says {ENTRY.unpack(want)}; --rebuild rebuilds it"
            )
            return

    def _read(self, key: MessageQueue, at: int, count: int) -> bytes:
        folder = self._folder / key.topic / str(key.queue_id)
        if key not in self._files:
            self._files[key] = [(int(f.name), f.size) for f in self._disk.list(folder) if f.name.isdecimal()]
        out = b""
        for base, size in self._files[key]:
            if base <= at < base + size and count > 0:
                data = self._disk.open(folder / f"{base:020d}", read_only=True).read(
                    min(count, base + size - at), at - base
                )
                out, at, count = out + data, at + len(data), count - len(data)
        return out


def _is_other_delay(key: MessageQueue, have: bytes, want: bytes) -> bool:
    """Tell whether entries of a delayed message differ in its due time only: the levels are the broker's setting."""
    if key.topic != SCHEDULE_TOPIC or len(have) != ENTRY_BYTES:
        return False
    (*place, due_ms), (*wanted, usual_ms) = ENTRY.unpack(have), ENTRY.unpack(want)
    return place == wanted and abs(due_ms - usual_ms) < LONGEST_LEVEL_MS


def salvage(root: Path, out: Path, *, progress: Progress = lambda done, total: None) -> Report:
    """Write every intact message of a damaged log into a new store in an empty folder. Raises StoreRefused, OSError.

    Order, queues, times and numbers of the messages stay, what was lost becomes a hole; log offsets are new, so the
    copy begins a new epoch.
    """
    disk, report = ZeroingDisk(RealDisk(), root), Report(log_only=True)
    if disk.list(out):
        raise StoreRefused(f"{out} is not empty: name a new or an empty folder")
    segments = open_segments(disk, root, report)
    if not segments:
        raise StoreRefused(f"{root} has no log")
    writer = SalvageWriter(disk, out, segments[0].size)
    for segment, entry in records(segments, report, progress):
        report.records += 1
        if not is_filler(entry):
            raw = segment.file.read(entry.size, entry.log_offset - segment.base)
            writer.add(decode_record(raw))
    writer.finish()
    for text in disk.told():
        report.note(text)
    return report


def salvage_aside(root: Path, out: Path) -> QuarantineSalvaged:
    """Write every message in quarantine/ into a new store in an empty folder. Raises StoreRefused, OSError."""
    disk = RealDisk()
    sizes = [facts.size for facts in disk.list(root / "commitlog") if facts.name.isdecimal() and facts.size]
    return salvage_quarantine(disk, root, out, segment_bytes=sizes[0] if sizes else SEGMENT_BYTES)


def rebuild(root: Path) -> None:
    """Remove queues, index and position; the next start rebuilds them from the log. Raises StoreRefused, OSError."""
    disk = RealDisk()
    if not disk.list(root / "commitlog"):
        raise StoreRefused(f"{root} has no log to rebuild from")
    try:
        lock = disk.lock(root / "lock")
    except BlockingIOError as exc:
        raise StoreRefused(f"{root} is in use: stop the broker first") from exc
    try:
        disk.remove(root / "rocketbox" / "position")
        disk.remove(root / "checkpoint")
        disk.remove_folder(root / "consumequeue")
        disk.remove_folder(root / "index")
        disk.sync_folder(root)
    finally:
        lock.release()


def show_progress(done: int, total: int) -> None:
    """Draw a bar on stderr if it is a terminal."""
    if sys.stderr.isatty():
        part = done / max(1, total)
        print(f"\r[{'#' * int(40 * part):<40}] {100 * part:3.0f} % ", end="", file=sys.stderr, flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line of `rocketbox fsck`."""
    parser.add_argument("folder", type=Path, nargs="?", metavar="DIR", help="the data folder, or the store inside it")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the same as DIR")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--salvage", type=Path, metavar="OUT", help="write every intact message into a new store in OUT"
    )
    parser.add_argument(
        "--quarantine", action="store_true", help="with --salvage: the messages of quarantine/ instead of the log's"
    )
    parser.add_argument("--rebuild", action="store_true", help="rebuild queues and index at the next start")


def main(arguments: list[str], *, clock: Callable[[], float] = time.monotonic) -> int:
    """Run the command, return its exit code."""
    parser = argparse.ArgumentParser(
        prog="rocketbox fsck", description="Check a stopped store. Without options nothing is changed."
    )
    add_arguments(parser)
    return run(parser.parse_args(arguments), clock=clock)


def run(options: argparse.Namespace, *, clock: Callable[[], float] = time.monotonic) -> int:
    """Check, salvage or rebuild; return 0 when nothing was found, 1 with findings, 2 when it could not check."""
    if (options.folder is None) == (options.data is None) or (options.quarantine and options.salvage is None):
        print("fsck: pass one folder: DIR or --data DIR; --quarantine goes with --salvage", file=sys.stderr)
        return 2
    folder = options.folder or options.data
    root = folder / "store" if (folder / "store" / "commitlog").is_dir() else folder
    began = clock()
    try:
        if options.quarantine:
            return _salvaged_aside(root, options.salvage, as_json=options.json)
        if options.salvage is not None:
            report = salvage(root, options.salvage, progress=show_progress)
        else:
            report = check(root, progress=show_progress)
        if options.rebuild:
            rebuild(root)
    except (StorageError, OSError) as exc:
        print(json.dumps({"error": str(exc)}) if options.json else f"fsck: {exc}", file=sys.stderr)
        return 2
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if options.json:
        print(json.dumps(report.to_json() | {"seconds": round(clock() - began, 3)}))
    else:
        print(report.to_text())
        if options.salvage is not None:
            print(f"salvaged {report.records - report.covered} messages into {options.salvage}")
        elif aside := quarantined_ranges(RealDisk(), root):
            offer = "`--salvage OUT --quarantine` makes a store of their messages"
            print(f"aside    {len(aside)} ranges of the log are in quarantine/: {offer}")
        if options.rebuild:
            print("queues and index are removed, the next start rebuilds them")
    return 1 if report.findings else 0


def _salvaged_aside(root: Path, out: Path, *, as_json: bool) -> int:
    found = salvage_aside(root, out)
    if as_json:
        print(json.dumps(found._asdict()))
    else:
        print(f"salvaged {found.messages} messages of {found.ranges} ranges in quarantine/ into {out}")
        print(f"topics   {', '.join(found.topics) or '-'}")
    return 0
