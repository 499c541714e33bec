"""The parts of one store, made for each other: each is handed what it needs, none knows the store."""

from collections.abc import Callable, Container

from storage_driver.appending import Appender
from storage_driver.bad_sectors import BadSectors
from storage_driver.config import StoreConfig
from storage_driver.files.disk import Disk
from storage_driver.files.state_file import StateFile
from storage_driver.flusher import Flusher
from storage_driver.log.clock import ClockEpochs
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.segment import SegmentWriter
from storage_driver.lookup import Lookup
from storage_driver.maintenance import Maintenance
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.queues.dispatch import Arrival, Dispatcher
from storage_driver.queues.topic_queues import TopicQueues
from storage_driver.raw_appending import RawAppender
from storage_driver.record import MessageQueue
from storage_driver.recovery.known_damage import KnownDamage
from storage_driver.recovery.opening import Opened
from storage_driver.recovery.queue_repair import QueueRepair
from storage_driver.recovery.recovery import Recovered
from storage_driver.retention.deletion import Deletion
from storage_driver.segment_copies import SegmentCopies


class Hooks(NamedTuple):
    """What the parts ask and tell outside of the store."""

    now_ms: Callable[[], int]
    arrived: Callable[[Arrival], None]
    watched: Container[MessageQueue] | None
    clock_trusted: Callable[[], bool]
    may_go: Callable[[int, int], bool]  # a segment [base, end) may be deleted
    note_trouble: Callable[[str], None]
    state_file: Callable[[str], StateFile]


class StoreParts(NamedTuple):
    """Everything that one store consists of."""

    queues: dict[MessageQueue, ConsumeQueue]
    log: CommitLog
    flusher: Flusher
    appender: Appender
    raw: RawAppender
    clock: ClockEpochs
    damage: KnownDamage
    queue_repair: QueueRepair
    lookup: Lookup
    deletion: Deletion
    copies: SegmentCopies
    topic_queues: TopicQueues


def compose(config: StoreConfig, disk: Disk, opened: Opened, hooks: Hooks) -> StoreParts:
    """Make the parts of a store that was recovered."""
    recovered, queues = opened.recovered, opened.recovered.queues
    dispatcher = Dispatcher(hooks.arrived, config.delays_ms, watched=hooks.watched)
    log = _open_log(config, disk, recovered, dispatcher, lambda: appender)
    flusher = Flusher(config, opened.tables, log, dispatcher, queues=queues, index=opened.index, now_ms=hooks.now_ms)
    clock = ClockEpochs()
    damage = KnownDamage(disk, log, opened.losses, now_ms=hooks.now_ms, note_trouble=hooks.note_trouble)
    appender = Appender(
        config,
        log,
        flusher,
        queues,
        now_ms=hooks.now_ms,
        last_ms=recovered.last_stored_ms,
        stepped=lambda log_offset, now_ms: clock.begin(log_offset, now_ms, trusted=False),
    )
    queue_repair = QueueRepair(config, opened.tables, log, flusher, damage=damage)
    boundaries, mend = clock.boundaries, queue_repair.mend
    bad_sectors = BadSectors(log, opened.tables, damage)
    lookup = Lookup(
        config, disk, log, queues, index=opened.index, boundaries=boundaries, bad_sectors=bad_sectors, mend=mend
    )
    deletion = Deletion(
        config,
        disk,
        log,
        flusher,
        queues,
        first_file=opened.first,
        dispatcher=dispatcher,
        appender=appender,
        lookup=lookup,
    )
    raw = RawAppender(log, queues, make_queue=appender.make_queue)
    copies = SegmentCopies(disk, config.root / "commitlog", log, raw, flusher=flusher)
    of_topics = TopicQueues(queues, lambda: deletion.topics)
    parts = queues, log, flusher, appender, raw, clock, damage, queue_repair, lookup, deletion, copies
    return StoreParts(*parts, of_topics)


def make_maintenance(config: StoreConfig, disk: Disk, parts: StoreParts, hooks: Hooks) -> Maintenance:
    """Make what looks after space, damage and age while the store runs."""
    return Maintenance(
        config,
        disk,
        parts.log,
        parts.flusher,
        files=hooks.state_file,
        appender=parts.appender,
        lookup=parts.lookup,
        deletion=parts.deletion,
        clock=parts.clock,
        damage=parts.damage,
        now_ms=hooks.now_ms,
        clock_trusted=hooks.clock_trusted,
        may_go=hooks.may_go,
        note_trouble=hooks.note_trouble,
    )


def _open_log(
    config: StoreConfig,
    disk: Disk,
    recovered: Recovered,
    dispatcher: Dispatcher,
    appender: Callable[[], Appender],
) -> CommitLog:
    segments, end = recovered.segments, recovered.end
    tail = segments[-1] if segments and segments[-1].end > end else None
    return CommitLog(
        segments,
        end,
        SegmentWriter(disk, config.root / "commitlog", recovered.segment_bytes, tail, zero_ahead=config.zero_ahead),
        segment_bytes=recovered.segment_bytes,
        dispatch=dispatcher.dispatch,
        on_truncated=lambda dropped: appender().on_truncated(dropped),
        no_room=lambda reason: appender().no_room(reason),
        flush_budget_s=config.flush_budget_ms / 1000,
    )
