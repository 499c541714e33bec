"""Composes the parts of the broker: tables, handlers, loops. It decides nothing, it only passes parts around."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from appliance.broker.access.request_table import Loaded, loaded
from appliance.broker.acknowledging import SendAcknowledging
from appliance.broker.broker_tables import BrokerTables, Clock
from appliance.broker.consume.lookups import Lookups
from appliance.broker.consume.moved import MovedEvents
from appliance.broker.consume.pull import PullRules, Pulls, PullTables
from appliance.broker.consume.send_back import SendBacks, SendBackTables
from appliance.broker.consume.sessions import Sessions, SessionTables
from appliance.broker.delay.levels import DelayLevels, LevelProgress, parse_levels
from appliance.broker.delay.recall import Recalls
from appliance.broker.delay.timer_progress import TimerProgress
from appliance.broker.delay.timers import TimerRules, Timers
from appliance.broker.intake import Intake
from appliance.broker.pop.counts import PopCounts
from appliance.broker.pop.lazy_pop import LazyPop
from appliance.broker.publish.publishing import Publishing, PublishRules, PublishTables
from appliance.broker.publish.reply import Askers, Replies, ReplyRules
from appliance.broker.publish.send import Sends
from appliance.broker.publish.send_properties import PropertyRules
from appliance.broker.tables.offsets import SAVE_S
from appliance.broker.tables.saving import KeptFiles
from appliance.broker.tables.topics import READ, WRITE
from appliance.broker.tables.unused import Unused, UnusedTables
from appliance.broker.transactions.checks import TransactionChecks
from appliance.broker.transactions.half_messages import HALF_QUEUE, TransactionEnds, TransactionRules, half_divert
from appliance.configuration.settings import Config
from appliance.requests import Handle, deferred, merged
from netstack.wire.codes import RequestCode
from netstack.wire.json_body import MessageQueue
from storage_driver.files.journal_file import JournalFile
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore

if TYPE_CHECKING:
    from appliance.broker.pop.engine import PopEngine, PopTables

MIB = 1 << 20
SHARED_SAVE_S = 1.0  # of consumer offsets, where another box goes on with them
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
Loop = Callable[[], Awaitable[None]]


class Waiting(NamedTuple):
    """What is stored and not yet delivered or acknowledged: delay levels, timed messages, undecided halves, POP."""

    delays: Callable[[], list[LevelProgress]]
    timers: Callable[[], int]
    halves: Callable[[], int]
    pop: Callable[[], PopCounts]


class BrokerParts(NamedTuple):
    """What a message means, for other ports than those of remoting."""

    publishing: Publishing
    transactions: TransactionEnds
    recalls: Recalls


class Assembled(NamedTuple):
    """The broker as others use it: its handlers, its loops, the tables to save at a stop."""

    handlers: dict[int, Handle]
    loops: tuple[Loop, ...]
    flushes: tuple[Loop, ...]
    keep_from: Callable[[], int]  # retention must not pass this log offset: something below it is not delivered yet
    waiting: Waiting
    pop: LazyPop
    parts: BrokerParts


class _Ground(NamedTuple):
    """What every part of the broker is made over; `address` is what refusals call the broker.

    follows: another broker has the same log and delivers what is delayed; this one takes no messages.
    """

    config: Config
    store: MessageStore
    tables: BrokerTables
    address: str
    now_ms: Clock
    files: KeptFiles
    follows: bool

    @property
    def shared(self) -> bool:
        """Whether another box may go on with the tables at any moment."""
        return self.files is not self.store


class _Delivery(NamedTuple):
    """What is stored now and delivered later, or again; on a slave none of it runs, as its master delivers."""

    delays: DelayLevels
    timers: Timers
    transactions: TransactionEnds
    checks: TransactionChecks
    pop: LazyPop

    def loops(self) -> tuple[Loop, ...]:
        return self.pop.run, self.delays.run, self.timers.run, self.checks.run

    def flushes(self) -> tuple[Loop, ...]:
        return self.delays.flush, self.timers.flush, self.pop.flush

    def floor(self) -> int:
        """Return the log offset below which everything is delivered."""
        return min(self.delays.floor(), self.checks.floor(), self.timers.floor())

    def waiting(self, store: MessageStore) -> Waiting:
        halves = lambda: store.max_offset(HALF_QUEUE) - self.transactions.table.base  # noqa: E731
        return Waiting(self.delays.progress, lambda: len(self.timers.index), halves, self.pop.counts)


def assemble(
    config: Config,
    store: MessageStore,
    tables: BrokerTables,
    address: str,
    *,
    files: KeptFiles | None = None,
    follows: bool = False,
    now_ms: Clock,
) -> Assembled:
    """Return handlers and loops over the tables; see `_Ground`."""
    ground = _Ground(config, store, tables, address, now_ms, files or store, follows)
    delivery, sessions = _delivery(ground), _sessions(ground)
    intake = Intake(store, [half_divert, delivery.timers.divert, delivery.delays.divert])
    publishing = _publishing(ground, intake)
    recalls = Recalls(
        delivery.timers,
        tables.topics,
        when_committed=store.when_acknowledged,
        now_ms=now_ms,
        region=config.broker.region,
    )
    handlers = merged(
        _data_handlers(ground, intake, publishing),
        sessions.handlers(),
        Lookups(tables.topics, tables.offsets, store).handlers(),
        delivery.transactions.handlers(),
        delivery.checks.handlers(),
        recalls.handlers(),
        TimerProgress(delivery.timers.checkpoint).handlers(),
        deferred(loaded(Loaded.WITH_QUERY), lambda: _query_handlers(ground)),
        deferred(loaded(Loaded.WITH_TOOL), lambda: _tool_handlers(ground, delivery)),
        deferred(loaded(Loaded.WITH_POP), lambda: _pop_handlers(ground, delivery.pop)),
    )
    loops, flushes = _running(ground, delivery, sessions)
    floor = (lambda: store.committed) if ground.follows else delivery.floor
    parts = BrokerParts(publishing, delivery.transactions, recalls)
    return Assembled(handlers, loops, flushes, floor, delivery.waiting(store), delivery.pop, parts)


def _running(ground: _Ground, delivery: _Delivery, sessions: Sessions) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """Return the loops of the broker, and what is saved at a stop."""
    tables = ground.tables
    unused = Unused(
        UnusedTables(tables.topics, tables.groups, tables.offsets, tables.clients), ground.store, tables.creations
    )
    others = (tables.topics, tables.groups, tables.creations, tables.resent, tables.modes)
    delivering, flushing = (*delivery.loops(), unused.run), delivery.flushes()
    if ground.follows:  # it deletes no topics either
        delivering = flushing = ()
    offsets: Loop = partial(tables.offsets.run, save_s=SHARED_SAVE_S if ground.shared else SAVE_S)
    loops = (
        *(table.run for table in others),
        offsets,
        *delivering,
        sessions.run,
        sessions.run_expiry,
        tables.stats.run,
    )
    return loops, (*(table.flush for table in others), tables.offsets.flush, *flushing)


def _delivery(ground: _Ground) -> _Delivery:
    config, store, tables, _, now_ms, _, _ = ground
    stats, levels = tables.stats, parse_levels(config.broker.delay_levels)
    file = ground.files.state_file("delayOffset")
    again = tables.topics.make_again
    delays = DelayLevels(store, tables.arrivals, file, levels, stats=stats, now_ms=now_ms, make_topic=again)
    timer_rules = TimerRules(config.box.name, config.broker.timer_days * DAY_MS)
    timer_file = ground.files.state_file("timers", folder="rocketbox")
    timers = Timers(timer_rules, store, tables.arrivals, timer_file, stats=stats, now_ms=now_ms, make_topic=again)
    rules = _transaction_rules(config, store)
    acknowledging = SendAcknowledging(store, tables.topics)
    transactions = TransactionEnds(
        *(rules, store, tables.offsets),
        now_ms=now_ms,
        put_stat=stats.put,
        acknowledging=acknowledging,
        make_topic=again,
    )
    make_topic = partial(tables.topics.ensure, queues=1)
    checks = TransactionChecks(transactions, tables.clients, now_ms=now_ms, make_topic=make_topic)
    return _Delivery(delays, timers, transactions, checks, _pop(ground))


def assignment_handlers(tables: BrokerTables, readable: Callable[[str], list[MessageQueue]]) -> dict[int, Handle]:
    """Return the handler for consumers whose queues the broker assigns; `readable` gives the queues of all brokers."""

    def make() -> dict[int, Handle]:
        from appliance.broker.consume.assignment import Assignments  # see _query_handlers

        return Assignments(tables.clients, tables.modes, readable).handlers()

    return deferred([RequestCode.QUERY_ASSIGNMENT], make)


def _pop(ground: _Ground) -> LazyPop:
    def make(file: JournalFile) -> "PopEngine":
        from appliance.broker.pop.engine import PopEngine  # most boxes have no consumer that uses POP

        return PopEngine(file, ground.store, _pop_tables(ground.tables), now_ms=ground.now_ms)

    return LazyPop(ground.files.journal_file("pop.journal"), make)


def _pop_tables(tables: BrokerTables) -> "PopTables":
    from appliance.broker.pop.engine import PopTables

    return PopTables(tables.topics, tables.groups, tables.offsets, tables.arrivals, tables.stats)


def _pop_handlers(ground: _Ground, pop: LazyPop) -> dict[int, Handle]:
    from appliance.broker.pop_requests.checks import PopChecks, PopRules
    from appliance.broker.pop_requests.composition import pop_handlers  # see _pop

    config, rules, tables = ground.config, ground.config.broker, ground.tables
    readable = bool(rules.permission & READ) and not ground.follows  # takes are the master's
    pop_rules = PopRules(ground.address, config.box.name, readable, rules.property_filter)
    checks = PopChecks(pop_rules, tables.topics, tables.groups, tables.compile_pace)
    return pop_handlers(pop.engine(), checks, _pop_tables(tables), tables.modes, ground.store)


def _sessions(ground: _Ground) -> Sessions:
    config, tables = ground.config, ground.tables
    return Sessions(
        SessionTables(
            *(tables.topics, tables.groups, tables.clients, tables.locks, tables.arrivals, tables.compile_pace)
        ),
        broker=config.box.name,
        now_ms=ground.now_ms,
        property_filter=config.broker.property_filter,
        notify=config.broker.notify_members,
    )


def _query_handlers(ground: _Ground) -> dict[int, Handle]:
    from appliance.broker.admin.query import Queries  # 0.1 s of processor time that a start need not pay

    return Queries(ground.store, ground.tables.clients, now_ms=ground.now_ms).handlers()


def _tool_handlers(ground: _Ground, delivery: _Delivery) -> dict[int, Handle]:
    from appliance.apache_names import broker_properties
    from appliance.broker.admin.administration import AdminFacts, AdminTables, admin_handlers  # see _query_handlers

    config, store, tables, address, now_ms, _, _ = ground
    admin_tables = AdminTables(
        tables.topics, tables.groups, tables.offsets, tables.clients, tables.arrivals, tables.stats, tables.resent
    )
    timers = delivery.waiting(store).timers
    facts = AdminFacts(
        config.box.name, address, partial(broker_properties, config, address, follows=ground.follows), timers
    )
    return admin_handlers(store, admin_tables, delivery.delays, facts, now_ms=now_ms)


def _transaction_rules(config: Config, store: MessageStore) -> TransactionRules:
    rules = config.broker
    return TransactionRules(
        store.config.store_host,
        timeout_ms=rules.transaction_timeout_s * 1000,
        most_checks=rules.transaction_checks,
        check_s=rules.transaction_check_s,
        oldest_ms=config.store.retention_h * HOUR_MS,
    )


def _publishing(ground: _Ground, intake: Intake) -> Publishing:
    config, store, tables, address, _, _, _ = ground
    rules = config.broker
    publish_rules = PublishRules(
        _added(config),
        address,
        broker=config.box.name,
        writable=bool(rules.permission & WRITE),
        reject_transactions=rules.reject_transactions,
        max_message_bytes=config.limits.message_mib * MIB,
    )
    publish_tables = PublishTables(
        tables.topics, tables.groups, tables.clients, tables.questions, tables.dedup, tables.space, tables.stats
    )
    return Publishing(publish_rules, publish_tables, store, intake)


def _added(config: Config) -> PropertyRules:
    rules = config.broker
    return PropertyRules(cluster=config.box.cluster, region=rules.region, trace_on=rules.trace_on)


def _data_handlers(ground: _Ground, intake: Intake, publishing: Publishing) -> dict[int, Handle]:
    """Return the handlers of send, pull, send-back and reply."""
    config, store, tables, address, now_ms, _, _ = ground
    rules, added, host = config.broker, _added(config), store.config.store_host
    sends = Sends(publishing, store, store_host=host, region=rules.region, trace_on=rules.trace_on)
    reply_rules = ReplyRules(publishing.topic_of, added.complete, host, region=rules.region, trace_on=rules.trace_on)
    replies = Replies(reply_rules, Askers(tables.clients, tables.questions), store, intake, now_ms=now_ms)
    send_backs = SendBacks(
        SendBackTables(tables.topics, tables.groups, tables.stats),
        store,
        intake,
        address=address,
        writable=bool(rules.permission & WRITE),
    )
    return merged(sends.handlers(), replies.handlers(), send_backs.handlers(), _pulls(ground, intake).handlers())


def _pulls(ground: _Ground, intake: Intake) -> Pulls:
    config, store, tables, address, _, _, _ = ground
    rules = config.broker
    return Pulls(
        PullRules(
            address,
            readable=bool(rules.permission & READ),
            property_filter=rules.property_filter,
            long_poll=rules.long_poll,
            most=rules.pull_messages,
            slave_reads=ground.config.replication.slave_reads,
            corrects=not ground.follows,
        ),
        PullTables(
            tables.topics,
            tables.groups,
            tables.clients,
            tables.offsets,
            tables.arrivals,
            tables.stats,
            tables.compile_pace,
            moved=MovedEvents(intake, config.box.name).note,
        ),
        store,
    )
