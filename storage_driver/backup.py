"""A consistent copy of a store, also of a running one, and its restore. Functions for the command line; they block."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from storage_driver.consensus.vote_file import VoteFile
from storage_driver.errors import StoreRefused, VoteFileDamaged
from storage_driver.files.disk import Disk, DiskFile, RealDisk, data_pieces
from storage_driver.files.linkless_disk import LinklessDisk
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.log.scan import Bad, Blank, next_good, walk
from storage_driver.log.segment import Segment
from storage_driver.named_tuple import NamedTuple

Progress = Callable[[int, int], None]
MANIFEST = "backup.json"
LAYOUT = 1


class BackupFacts(NamedTuple):
    """The contents of a backup."""

    first: int
    end: int
    segments: int
    bytes: int
    unreadable: Sequence[str] = ()  # what the disk did not give back: zeros in the copy, which its first start tells


def backup(store: Path, target: Path, *, progress: Progress = lambda done, total: None) -> BackupFacts:
    """Copy a store to an empty folder: tables, then the log up to the last whole record; queues come with recovery.

    The tables are copied first, so that no offset in them is behind the log that was copied. A segment that is
    deleted meanwhile is left out with all before it. No link among the tables is followed, and none in the target. Of
    bad sectors zeros are copied. Raises StoreRefused, OSError.
    """
    disk, copy = RealDisk(), LinklessDisk(target)
    log, tables = ZeroingDisk(disk, store), ZeroingDisk(LinklessDisk(store), store)
    if disk.list(target):
        raise StoreRefused(f"{target} is not empty: a backup needs an empty folder")
    if not disk.list(store / "commitlog") and not disk.exists(store / "rocketbox"):
        raise StoreRefused(f"{store} does not contain a store")
    for folder in ("config", "rocketbox"):
        _copy_tables(tables, store / folder, copy, target / folder)
    disk.remove(target / "rocketbox" / "position")  # the copy has no queues yet
    disk.remove(target / "rocketbox" / "first")  # and may begin later than the tables say
    names = [facts for facts in disk.list(store / "commitlog") if facts.name.isdecimal() and facts.size]
    total, done, end = sum(facts.size for facts in names), 0, 0
    copied: list[str] = []
    copy.make_folder(target / "commitlog")
    for facts in names:
        try:
            source = log.open(store / "commitlog" / facts.name, read_only=True)
        except FileNotFoundError:
            for name in copied:  # retention went past us
                disk.remove(target / "commitlog" / name)
            copied = []
            continue
        end = _copy_segment(copy, source, target / "commitlog" / facts.name, facts.size)
        copied.append(facts.name)
        done += facts.size
        progress(done, total)
    first = int(copied[0]) if copied else 0
    unreadable = [*tables.told(), *log.told()]
    found = BackupFacts(first, end, len(copied), sum(f.size for f in names if f.name in copied), unreadable)
    manifest = copy.open(target / MANIFEST, create=True)
    manifest.write([json.dumps({"layout": LAYOUT, **found._asdict()}).encode()], 0)
    disk.sync_all(target)
    return found


def _copy_tables(disk: Disk, source: Path, copy: Disk, target: Path) -> None:
    copy.make_folder(target)
    for facts in disk.list(source):
        if facts.is_folder or facts.name.endswith(".tmp"):
            continue
        try:
            file = disk.open(source / facts.name, read_only=True)
        except FileNotFoundError:
            continue  # replaced this moment; the `.bak` or the new one follows
        written = copy.open(target / facts.name, create=True)
        written.resize(file.size())
        for at, data in data_pieces(file, 0, file.size()):
            written.write([data], at)


def _copy_segment(disk: Disk, source: DiskFile, target: Path, size: int) -> int:
    """Copy the whole records of one segment, return the log offset after them (the file's end for a full one)."""
    base = int(target.name)
    segment, end = Segment(base, size, target, source), base
    for item in walk(segment, base):
        if isinstance(item, Bad):
            break
        end = base + size if isinstance(item, Blank) else item.log_offset + item.size
    copy = disk.open(target, create=True)
    copy.resize(size)
    tail = _damage_end(segment, end)
    for at, data in data_pieces(source, 0, max(end, tail) - base):
        copy.write([data], at)
    return end


def _damage_end(segment: Segment, at: int) -> int:
    """Return how far to copy although a bad record is at `at`: to the file's end when good ones follow it."""
    return segment.end if at < segment.end and next_good(segment, at + 1) is not None else at


def _forget_votes(disk: Disk, path: Path) -> None:
    """Have a member of a group count as one with a new disk: it has voted and acknowledged since. Raises OSError."""
    vote = VoteFile(disk, path)
    if disk.exists(path):
        with suppress(VoteFileDamaged):  # the start refuses it, and says what to do
            vote.save(vote.load()._replace(filling=True))


def restore(source: Path, store: Path, *, progress: Progress = lambda done, total: None) -> BackupFacts:
    """Copy a backup to where a store shall be; the first opening rebuilds queues. Raises StoreRefused, OSError.

    No link on either side is followed: a backup is a folder that others had, and the store is its user's, not root's.
    """
    disk, own = LinklessDisk(source), LinklessDisk(store)
    try:
        raw = disk.open(source / MANIFEST, read_only=True).read(1 << 16, 0)
        manifest = json.loads(raw)
        if manifest.pop("layout") > LAYOUT:
            raise StoreRefused(f"{source} was made by a newer program: update this one")
        facts = BackupFacts(**manifest)
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise StoreRefused(f"{source} does not contain a backup: {exc}") from exc
    found = disk.list(source / "commitlog")
    if (len(found), sum(each.size for each in found)) != (facts.segments, facts.bytes):
        raise StoreRefused(
            f"{source} is incomplete: {len(found)} files of its log are there, {facts.segments} of {facts.bytes} bytes "
            "were copied; fetch it again, or save what is left of it with `fsck --salvage`"
        )
    if store.exists() and own.list(store / "commitlog"):
        raise StoreRefused(f"{store} already holds a log: restore into an empty folder")
    for folder in ("config", "rocketbox"):
        _copy_tables(disk, source / folder, own, store / folder)
    _forget_votes(own, store / "rocketbox" / "vote")
    own.make_folder(store / "commitlog")
    done = 0
    for segment in found:
        file = disk.open(source / "commitlog" / segment.name, read_only=True)
        copy = own.open(store / f"{segment.name}.tmp", create=True)
        copy.resize(segment.size)
        for at, data in data_pieces(file, 0, segment.size):
            copy.write([data], at)
        copy.sync()
        own.rename(store / f"{segment.name}.tmp", store / "commitlog" / segment.name)
        done += segment.size
        progress(done, facts.bytes)
    own.sync_all(store)
    return facts
