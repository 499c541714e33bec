"""Opening of a store: lock, recover, add the run, write the verdict. Blocks: for a thread."""

import errno
import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from storage_driver.config import StoreConfig
from storage_driver.errors import StoreRefused, StoreUnwritable
from storage_driver.files.checkpoint import CheckpointValues, CommittedFile, FirstFile, PositionFile
from storage_driver.files.disk import SPACE_ERRORS, Disk, FileLock
from storage_driver.files.free_space import release_space
from storage_driver.files.layout_repair import FOLDERS, LOCK, free_lock, repair_layout
from storage_driver.files.lost_names import CHECK, around_lost, free_tables_lost
from storage_driver.files.memory_layer import MemoryLayer
from storage_driver.files.state_file import StateFile, damaged_tables
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.index.index_file import Index
from storage_driver.log.copied_segment import COPY
from storage_driver.log.cut_history import CutDone
from storage_driver.log.lineage import Lineage
from storage_driver.log.truncation import Truncation
from storage_driver.log.unwritable import replace_unwritable
from storage_driver.queues.consume_queue import ConsumeQueue, QueueFiles
from storage_driver.queues.queue_table import RebuildMark
from storage_driver.record import MessageQueue
from storage_driver.recovery.losses import Loss, Losses
from storage_driver.recovery.recovery import Recovered, Recovery, refuse_small_segments
from storage_driver.recovery.verdict import RecoveryVerdict
from storage_driver.recovery.witnesses import INDEX, index_reach

T = TypeVar("T")
VERDICTS_KEPT = 64
WHY_NOT = {  # and the next step
    **dict.fromkeys(SPACE_ERRORS, ("the disk is full", "free some MiB on it, and files (df -i)")),
    **dict.fromkeys((errno.EPERM, errno.EACCES), ("it is protected", "give it to the box's user (ls -l, lsattr)")),
    **dict.fromkeys(
        (errno.EEXIST, errno.ENOTDIR, errno.ELOOP), ("it is not a folder", "mount or move away what is there")
    ),
    **dict.fromkeys((errno.EUCLEAN, errno.EBADMSG), ("its file system is damaged", CHECK)),
    errno.EIO: ("the disk fails", f"see the kernel's log; if it gives back other files, {CHECK}"),
    errno.EROFS: ("its disk refuses writes", "see the kernel's log, check the disk, mount it rw"),
    errno.EMFILE: ("too many files are open", "raise the limit: LimitNOFILE= of the unit, ulimit -n"),
}
PROTECTED = (errno.EPERM, errno.EACCES, errno.EBADF)  # the last of a segment that was opened to be read


class Opened:
    """A locked and recovered folder; the lock is held as long as this lives."""

    def __init__(
        self,
        lock: FileLock,
        recovered: Recovered,
        lineage: Lineage,
        index: Index,
        *,
        boot: bytes,
        committed: CommittedFile | None,
        first: FirstFile,
        losses: Losses,
        tables: ZeroingDisk,
    ) -> None:
        self.lock, self.recovered, self.lineage, self.index, self.boot = lock, recovered, lineage, index, boot
        self.committed = committed  # of a shared log
        self.first = first  # where the log begins, as it was saved
        self.losses = losses
        self.tables = tables  # the disk of everything but the log: what is unreadable of a table counts as damaged


def open_folder(
    config: StoreConfig,
    disk: Disk,
    *,
    now_ms: Callable[[], int],
    new_id: Callable[[], int],
    progress: Callable[[int, int], None],
    unreadable: Callable[[int], None] = lambda count: None,
    others: Mapping[str, int] = MappingProxyType({}),
) -> Opened:
    """Lock and recover the folder, append the run to its identity. Raises StoreRefused, StoreUnwritable.

    others: who, besides what is in the folder, knows up to which log offset the log was durable.
    unreadable(number of blocks) is called of each that the disk does not give back.
    """
    refuse_small_segments(config.segment_bytes, config.max_message_bytes)
    root = config.root
    lock, moved = _lock_folder(disk, root)
    done = False
    try:
        tables = ZeroingDisk(disk, root, counted=unreadable)
        freed = partial(_note_freed, tables, root, moved)
        moved += around_lost(tables, root, partial(_make_folders, tables, root), freed)
        moved += replace_unwritable(tables, root)
        begin = partial(_recover, config, tables, lock, now_ms=now_ms, new_id=new_id, progress=progress)
        recover = partial(begin, moved=moved, others=others)
        opened = around_lost(tables, root, partial(with_room, disk, root, recover), freed)
        done = True
        return opened
    except OSError as exc:
        raise why_refused(root, exc, readable=not isinstance(disk, MemoryLayer)) from exc
    finally:
        if not done:
            lock.release()


def with_room(disk: Disk, root: Path, step: Callable[[], T]) -> T:
    """Do a step of a start; on a full disk once more, with less held in advance. Raises OSError. Blocks."""
    try:
        return step()
    except OSError as exc:
        if exc.errno not in SPACE_ERRORS or not release_space(disk, root):
            raise
    return step()


def _lock_folder(disk: Disk, root: Path) -> tuple[FileLock, list[str]]:
    """Return the lock, and what had to be moved out of its way. Raises StoreRefused, StoreUnwritable."""
    try:
        if not disk.exists(root):
            disk.make_folder(root)
        moved = free_lock(disk, root)
        return disk.lock(root / LOCK), moved
    except BlockingIOError as exc:
        raise StoreRefused(f"{root} is in use by another broker: stop it, or choose another folder") from exc
    except OSError as exc:
        raise why_refused(root, exc, readable=exc.errno in PROTECTED and _nobody_has_it(disk, root)) from exc


def _nobody_has_it(disk: Disk, root: Path) -> bool:
    return disk.exists(root / "commitlog") and not disk.exists(root / LOCK)


def _note_freed(disk: Disk, root: Path, moved: list[str], path: Path, kept: str) -> None:
    """Note what was moved out of the way of a start; a queue of which it was is rebuilt. Raises OSError."""
    moved.append(f"{path.relative_to(root)}: the disk does not give it back, moved to quarantine/{kept}")
    _, *queue = path.relative_to(root).parts
    if len(queue) >= 2 and queue[1].isdecimal():
        mark = RebuildMark(disk, root)
        mark.set({*mark.load(), MessageQueue(queue[0], int(queue[1]))})


def why_refused(root: Path, exc: OSError, *, readable: bool) -> StoreRefused:
    """Return the text of the error for an unusable folder, with the next step."""
    if readable and exc.errno in PROTECTED:
        return StoreUnwritable(exc)
    why, step = WHY_NOT.get(exc.errno or 0, ("the disk fails", "see the kernel's log"))
    return StoreRefused(f"{root} cannot be used, {why}: {exc}; {step}")


def _make_folders(disk: ZeroingDisk, root: Path) -> list[str]:
    """Create missing folders, return what was moved aside. Raises StoreRefused, OSError."""
    moved = free_tables_lost(disk, root) + repair_layout(disk, root)
    fresh = not disk.exists(root / "abort")
    for name in ("", *FOLDERS):
        try:
            disk.make_folder(root / name)
        except PermissionError:
            if name != "config":  # its tables are in memory: what cannot be saved is told
                raise
    if fresh:  # a file is only as durable as the names above it; root itself is synced before the store serves
        disk.sync_folder(root.parent)
    return moved


def _recover(
    config: StoreConfig,
    disk: ZeroingDisk,
    lock: FileLock,
    *,
    now_ms: Callable[[], int],
    new_id: Callable[[], int],
    progress: Callable[[int, int], None],
    moved: list[str],
    others: Mapping[str, int],
) -> Opened:
    began, root = time.perf_counter(), config.root
    lineage = Lineage(StateFile(disk, root / "rocketbox" / "identity.json"), new_id)
    lineage.load()
    fresh, mark = not disk.exists(root / "abort"), disk.open(root / "abort", create=True)
    if disk.list(root / "commitlog"):  # else a recovery changes nothing, and the sync of root below is early enough
        mark.sync()
    if disk.exists(root / COPY):  # what came of a segment that was never whole, also before the box left its group
        disk.remove(root / COPY)
    losses, first = Losses(disk, root), FirstFile(disk, root)
    losses.load()
    cut = Truncation(disk, root).finish(partial(_note_cut, disk, root, losses, now_ms()))
    committed = CommittedFile(disk, root / "rocketbox" / "committed") if config.shared else None
    others = {**others, **_witnesses(config, disk, lineage)}
    known = _known_committed(disk, root, committed)
    make = partial(_make_recovery, config, disk, losses=losses, first=first.load(), others=others, committed=known)
    recovered = make(progress=progress, now_ms=now_ms()).run()
    index, verdict = Index(disk, root, config.index_size), recovered.verdict
    if config.index_enabled:
        recovered = recovered._replace(position=_load_index(index, root, recovered))
    _note_found(verdict, cut, lineage, moved + _damage_beside(disk, root))
    first.save(verdict.first)
    _begin_run(config, lineage, verdict.first, recovered.end)
    disk.sync_folder(root)
    verdict.seconds = time.perf_counter() - began
    if not fresh or verdict.verdict != "clean":
        _leave_verdict(config, disk, recovered, lineage, now_ms())
    return Opened(
        lock, recovered, lineage, index, boot=_boot(disk), committed=committed, first=first, losses=losses, tables=disk
    )


def _boot(disk: Disk) -> bytes:
    return disk.boot_id().encode().replace(b"-", b"")[:16].ljust(16, b"\0")


def _make_recovery(
    config: StoreConfig,
    disk: Disk,
    *,
    losses: Losses,
    first: int | None,
    others: Mapping[str, int],
    committed: int | None,
    progress: Callable[[int, int], None],
    now_ms: int,
) -> Recovery:
    return Recovery(
        disk,
        config.root,
        config.segment_bytes,
        files=QueueFiles(disk, config.root, file_entries=config.queue_file_entries),
        progress=progress,
        delays_ms=config.delays_ms,
        trust_above=config.trust_queues_above,
        committed=committed,
        losses=losses,
        others=others,
        first=first,
        copies=config.copies_only is not None or config.shared,
        now_ms=now_ms,
    )


def _begin_run(config: StoreConfig, lineage: Lineage, first: int, end: int) -> None:
    """Note this run; one that is not kept is told to nobody, since the next start would have another id for it."""
    if not (config.read_only and lineage.runs and lineage.runs[-1][1] <= end):
        lineage.begin_run(first, end)


def _damage_beside(disk: ZeroingDisk, root: Path) -> list[str]:
    """Return which tables are damaged, and what of all files is unreadable. Raises OSError."""
    tables = [text for name in ("config", "rocketbox") for text in damaged_tables(disk, root / name)]
    return disk.told() + tables


def _note_found(verdict: RecoveryVerdict, cut: CutDone | None, lineage: Lineage, found: list[str]) -> None:
    """Add to the verdict what was found beside the log: a cut that was finished, damaged tables, a new epoch."""
    if cut is not None:
        aside = ", ".join(cut.quarantined) or "nothing"
        verdict.reasons.append(
            f"the log was cut at {cut.log_offset}, it went to {cut.end}: {cut.reason}; kept: {aside}"
        )
    verdict.reasons += found
    if lineage.damage is not None:
        verdict.reasons.append(f"{lineage.damage}: a new epoch begins")
    if verdict.verdict in ("clean", "clean_tail") and (verdict.index_rebuilt or found or lineage.damage):
        verdict.verdict = "repaired"


def _note_cut(disk: Disk, root: Path, losses: Losses, now_ms: int, cut: CutDone) -> None:
    """List what a cut takes of the committed part of the log as lost here, before it goes. Raises OSError."""
    file = CommittedFile(disk, root / "rocketbox" / "committed")
    known = _known_committed(disk, root, file) or 0
    if known <= cut.log_offset:
        return
    ranges, why = [(cut.log_offset, max(known, cut.end))], f"cut: {cut.reason}; kept in {', '.join(cut.quarantined)}"
    witnesses, number = {"the committed mark": known}, losses.next_number(ranges)
    losses.note(Loss(number, now_ms, ranges, [why], witnesses, cut.messages))
    file.set_back(cut.log_offset)


def _witnesses(config: StoreConfig, disk: Disk, lineage: Lineage) -> dict[str, int]:
    """Return what else in the folder tells how far the log was durable. Raises OSError."""
    found = {INDEX: index_reach(disk, config.root, config.index_size)}
    if (known := CommittedFile(disk, config.root / "rocketbox" / "committed").load()) is not None:
        found["the committed mark"] = known
    if lineage.runs and not config.shared:  # a shared log may have been cut below: what was not committed
        found["the run before"] = lineage.runs[-1][1]
    return found


def _known_committed(disk: Disk, root: Path, file: CommittedFile | None) -> int | None:
    """Return a log offset below which a shared log was committed; queue files hold what was, and nothing else."""
    known = file.load() if file is not None else None
    if file is None or (known is None and file.damage is None):
        return None
    position = PositionFile(disk, root / "rocketbox" / "position").load()
    return max(known or 0, position.queues_to if position is not None else 0)


def _load_index(index: Index, root: Path, recovered: Recovered) -> CheckpointValues | None:
    """Open the index, return where to continue: missing entries come from the log again once the store runs."""
    index.load(root / "quarantine")
    verdict, position = recovered.verdict, recovered.position
    verdict.reasons += index.dropped
    verdict.index_rebuilt = len(index.dropped)
    if position is None:
        return None
    lost_from = index.lost_from(position.index_to, position.index_count)
    if lost_from is not None and lost_from < position.index_to:
        count = index.files[-1].count if index.files else 1
        position = position._replace(index_to=lost_from, index_count=count)
        if not index.files:
            verdict.index_rebuilt += 1
            verdict.reasons.append("index/ is empty: rebuilt from the log")
    return position


def _verdicts(config: StoreConfig) -> Path:
    return config.verdicts if config.verdicts is not None else config.root.parent / "verdicts"


def known_damage(config: StoreConfig, disk: Disk, runs: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges of the log that recoveries of these runs covered, as far as their verdicts are kept. Blocks."""
    known, ranges = {f"{run:016x}" for run in runs}, list[tuple[int, int]]()
    folder = _verdicts(config)
    for name in [facts.name for facts in disk.list(folder) if facts.name.startswith("store-") and not facts.odd]:
        try:
            told = json.loads(disk.open(folder / name, read_only=True).read(1 << 20, 0))
            if told["run"] in known:
                ranges += [(int(damage["from"]), int(damage["to"])) for damage in told["log"]["quarantined"]]
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue  # a verdict is for people: what is not there is not told
    return ranges


def _leave_verdict(config: StoreConfig, disk: Disk, recovered: Recovered, lineage: Lineage, now_ms: int) -> None:
    """Write the verdict file, keep the newest 64; one that cannot be written does not keep the box from starting."""
    folder = _verdicts(config)
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ms / 1000)) if 0 <= now_ms < 1 << 42 else str(now_ms)
    content: dict[str, object] = {
        "start": start,
        "epoch": f"{lineage.epoch:016x}",
        "run": f"{lineage.run:016x}",
    }
    content |= {**config.start_facts, **recovered.verdict.to_json()}
    try:
        disk.make_folder(folder)
        name = f"store-{len(lineage.runs):06d}-{now_ms:015d}.json"
        temporary = folder / "verdict.tmp"
        disk.remove(temporary)
        file = disk.open(temporary, create=True)
        file.write([json.dumps(content, indent=1).encode()], 0)
        file.sync()
        disk.rename(temporary, folder / name)
        disk.sync_folder(folder)
        old = [facts.name for facts in disk.list(folder) if facts.name.startswith("store-")]
        for name in old[:-VERDICTS_KEPT]:
            disk.remove(folder / name)
    except OSError as exc:
        recovered.verdict.reasons.append(f"verdict not written: {exc.strerror or errno.errorcode.get(exc.errno or 0)}")


def state_path(root: Path, name: str, folder: str) -> Path:
    """Return where a state file is."""
    if folder not in ("config", "rocketbox"):
        raise ValueError(f"state folder {folder!r}: config or rocketbox")
    return root / folder / (name if name.endswith(".json") else f"{name}.json")


def topics_since(queues: Mapping[MessageQueue, ConsumeQueue], log_offset: int) -> dict[str, int]:
    """Return the topics with records at or above a log offset, and their highest queue."""
    topics: dict[str, int] = {}
    for key, queue in queues.items():
        if queue.last_log_offset >= log_offset:
            topics[key.topic] = max(key.queue_id, topics.get(key.topic, 0))
    return topics
