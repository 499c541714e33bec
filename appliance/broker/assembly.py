"""Composes the parts of the broker: tables, handlers, loops. It decides nothing, it only passes parts around."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from appliance.broker.access.request_table import Loaded, loaded
from appliance.broker.admin.stats import BrokerCounters
from appliance.broker.consume.lookups import Lookups
from appliance.broker.consume.moved import MovedEvents
from appliance.broker.consume.pull import PullRules, Pulls, PullTables
from appliance.broker.consume.queue_locks import QueueLocks
from appliance.broker.consume.send_back import SendBacks, SendBackTables
from appliance.broker.consume.sessions import Sessions, SessionTables
from appliance.broker.delay.levels import DelayLevels, LevelProgress, parse_levels
from appliance.broker.delay.recall import Recalls
from appliance.broker.delay.timers import TimerRules, Timers
from appliance.broker.intake import Intake, Space
from appliance.broker.pop.counts import PopCounts
from appliance.broker.pop.lazy_pop import LazyPop
from appliance.broker.publish.dedup import DedupRules, DedupWindow
from appliance.broker.publish.publishing import Publishing, PublishRules, PublishTables
from appliance.broker.publish.questions import Questions
from appliance.broker.publish.recent import recent_messages
from appliance.broker.publish.reply import Askers, Replies, ReplyRules
from appliance.broker.publish.send import Sends
from appliance.broker.publish.send_properties import PropertyRules
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.creations import Creations
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.request_modes import RequestModes
from appliance.broker.tables.resent import Resent
from appliance.broker.tables.topics import READ, WRITE, TopicRules, TopicTable
from appliance.broker.tables.unused import Unused, UnusedTables
from appliance.broker.transactions.checks import TransactionChecks
from appliance.broker.transactions.half_messages import HALF_QUEUE, TransactionEnds, TransactionRules, half_divert
from appliance.configuration.settings import SLAVE_ROLE, Config
from appliance.requests import Handle, deferred, merged
from netstack.wire.codes import RequestCode
from netstack.wire.json_body import MessageQueue
from storage_driver.files.journal_file import JournalFile
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore

if TYPE_CHECKING:
    from appliance.broker.pop.engine import PopEngine, PopTables

MIB = 1 << 20
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
Clock = Callable[[], int]
Loop = Callable[[], Awaitable[None]]


class BrokerTables(NamedTuple):
    """The state of one broker, made before its handlers."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    questions: Questions
    locks: QueueLocks
    arrivals: Arrivals
    dedup: DedupWindow
    space: Space
    stats: BrokerCounters
    creations: Creations
    resent: Resent
    modes: RequestModes


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


def make_tables(config: Config, store: MessageStore, arrivals: Arrivals, *, now_ms: Clock) -> BrokerTables:
    """Load the tables, and make the topics again that the log knows and the saved table does not."""
    rules, limits = config.broker, config.limits
    topic_rules = TopicRules(
        cluster=config.box.cluster,
        broker=config.box.name,
        auto_create=rules.auto_create_topics,
        template_queues=config.store.queues_default,
        delay_levels=len(parse_levels(rules.delay_levels)),
        trace_topic=rules.trace_topic,
        most=limits.topics,
    )
    topics = TopicTable(store.state_file("topics"), topic_rules, now_ms=now_ms, log_end=lambda: store.end)
    topics.recover(store.recovered_topics)
    groups_file = store.state_file("subscriptionGroup")
    clients = ClientTable(most=limits.clients, now_ms=now_ms)
    dedup = DedupWindow(
        DedupRules(rules.dedup_entries, rules.dedup_s, frozenset(rules.dedup_topics), rules.dedup_topics_s),
        now_s=time.monotonic,
        durable=lambda: store.committed,
        connected=clients.connected,
    )
    groups = GroupTable(groups_file, auto_create=rules.auto_create_groups, most=limits.groups, now_ms=now_ms)
    creations_file = store.state_file("creations", folder="rocketbox")
    creations = Creations(creations_file, per_hour=limits.created_per_hour, now_ms=now_ms)
    topics.creations = groups.creations = creations
    modes = RequestModes(store.state_file("messageRequestMode"))
    topics.on_change(lambda name: None if topics.get(name) else modes.drop_topic(name))
    return BrokerTables(
        topics,
        groups,
        OffsetTable(store.state_file("consumerOffset")),
        clients,
        Questions(),
        QueueLocks(trio.current_time),
        arrivals,
        dedup,
        Space(),
        BrokerCounters(config.box.cluster, now_ms=now_ms),
        creations,
        Resent(store.state_file("resent", folder="rocketbox")),
        modes,
    )


async def rebuild_dedup(tables: BrokerTables, store: MessageStore, *, now_ms: Clock) -> None:
    """Know what was sent just before a restart: a producer without its answer sends it again now."""
    if not tables.dedup.enabled:
        return
    since_ms = now_ms() - int(tables.dedup.keep_s * 1000)
    found = await trio.to_thread.run_sync(recent_messages, store, since_ms)
    tables.dedup.rebuild(found, age_s=lambda message: (now_ms() - message.stored_ms) / 1000)


def assemble(config: Config, store: MessageStore, tables: BrokerTables, address: str, *, now_ms: Clock) -> Assembled:
    """Return handlers and loops over the tables; `address` is what refusals call the broker."""
    rules, stats = config.broker, tables.stats
    file, levels = store.state_file("delayOffset"), parse_levels(rules.delay_levels)
    delays = DelayLevels(store, tables.arrivals, file, levels, stats=stats, now_ms=now_ms)
    timer_rules = TimerRules(config.box.name, rules.timer_days * DAY_MS)
    timers = Timers(timer_rules, store, tables.arrivals, stats=stats, now_ms=now_ms)
    intake = Intake(store, [half_divert, timers.divert, delays.divert])
    transactions = TransactionEnds(
        _transaction_rules(config, store), store, tables.offsets, now_ms=now_ms, put_stat=stats.put
    )
    make_topic = partial(tables.topics.ensure, queues=1)
    checks = TransactionChecks(transactions, tables.clients, now_ms=now_ms, make_topic=make_topic)
    sessions, pop = _sessions(config, tables, now_ms), _pop(store, tables, now_ms)
    recalls = Recalls(timers, tables.topics, when_committed=store.when_committed, now_ms=now_ms, region=rules.region)
    publishing = _publishing(config, store, tables, intake, address)
    handlers = merged(
        _data_handlers(config, store, tables, (intake, publishing), address, now_ms),
        sessions.handlers(),
        Lookups(tables.topics, tables.offsets, store).handlers(),
        transactions.handlers(),
        checks.handlers(),
        recalls.handlers(),
        deferred(loaded(Loaded.WITH_QUERY), lambda: _query_handlers(store, tables, now_ms)),
        deferred(
            loaded(Loaded.WITH_TOOL), lambda: _tool_handlers(config, store, tables, (delays, timers), address, now_ms)
        ),
        deferred(loaded(Loaded.WITH_POP), lambda: _pop_handlers(config, store, tables, pop, address)),
    )
    used_by = UnusedTables(tables.topics, tables.groups, tables.offsets, tables.clients)
    unused = Unused(used_by, store, tables.creations)
    saved = (tables.topics, tables.groups, tables.offsets, tables.creations, tables.resent, tables.modes)
    slave = config.replication.role == SLAVE_ROLE  # it delivers nothing, and deletes no topics
    delivering = () if slave else (pop.run, unused.run, delays.run, timers.run, checks.run)
    loops = (*(table.run for table in saved), *delivering, sessions.run, sessions.run_expiry, stats.run)
    flushes = (*(table.flush for table in saved), *(() if slave else (delays.flush, timers.flush, pop.flush)))
    halves = lambda: store.max_offset(HALF_QUEUE) - transactions.table.base  # noqa: E731
    waiting = Waiting(delays.progress, lambda: len(timers.index), halves, pop.counts)
    floor = (lambda: store.committed) if slave else lambda: min(delays.floor(), checks.floor(), timers.floor())
    parts = BrokerParts(publishing, transactions, recalls)
    return Assembled(handlers, loops, flushes, floor, waiting, pop, parts)


def assignment_handlers(tables: BrokerTables, readable: Callable[[str], list[MessageQueue]]) -> dict[int, Handle]:
    """Return the handler for consumers whose queues the broker assigns; `readable` gives the queues of all brokers."""

    def make() -> dict[int, Handle]:
        from appliance.broker.consume.assignment import Assignments  # see _query_handlers

        return Assignments(tables.clients, tables.modes, readable).handlers()

    return deferred([RequestCode.QUERY_ASSIGNMENT], make)


def _pop(store: MessageStore, tables: BrokerTables, now_ms: Clock) -> LazyPop:
    def make(file: JournalFile) -> "PopEngine":
        from appliance.broker.pop.engine import PopEngine  # most boxes have no consumer that uses POP

        return PopEngine(file, store, _pop_tables(tables), now_ms=now_ms)

    return LazyPop(store.journal_file("pop.journal"), make)


def _pop_tables(tables: BrokerTables) -> "PopTables":
    from appliance.broker.pop.engine import PopTables

    return PopTables(tables.topics, tables.groups, tables.offsets, tables.arrivals, tables.stats)


def _pop_handlers(
    config: Config, store: MessageStore, tables: BrokerTables, pop: LazyPop, address: str
) -> dict[int, Handle]:
    from appliance.broker.pop_requests.checks import PopRules
    from appliance.broker.pop_requests.composition import pop_handlers  # see _pop

    rules = config.broker
    readable = bool(rules.permission & READ) and config.replication.role != SLAVE_ROLE  # takes are the master's
    pop_rules = PopRules(address, config.box.name, readable, rules.property_filter)
    return pop_handlers(pop.engine(), pop_rules, _pop_tables(tables), tables.modes, store)


def _sessions(config: Config, tables: BrokerTables, now_ms: Clock) -> Sessions:
    return Sessions(
        SessionTables(tables.topics, tables.groups, tables.clients, tables.locks, tables.arrivals),
        broker=config.box.name,
        now_ms=now_ms,
        property_filter=config.broker.property_filter,
        notify=config.broker.notify_members,
    )


def _query_handlers(store: MessageStore, tables: BrokerTables, now_ms: Clock) -> dict[int, Handle]:
    from appliance.broker.admin.query import Queries  # 0.1 s of processor time that a start need not pay

    return Queries(store, tables.clients, now_ms=now_ms).handlers()


def _tool_handlers(
    config: Config,
    store: MessageStore,
    tables: BrokerTables,
    waiting: tuple[DelayLevels, Timers],
    address: str,
    now_ms: Clock,
) -> dict[int, Handle]:
    from appliance.apache_names import broker_properties
    from appliance.broker.admin.administration import AdminFacts, AdminTables, admin_handlers  # see _query_handlers

    delays, timers = waiting
    admin_tables = AdminTables(
        tables.topics, tables.groups, tables.offsets, tables.clients, tables.arrivals, tables.stats, tables.resent
    )
    facts = AdminFacts(config.box.name, address, lambda: broker_properties(config, address), lambda: len(timers.index))
    return admin_handlers(store, admin_tables, delays, facts, now_ms=now_ms)


def _transaction_rules(config: Config, store: MessageStore) -> TransactionRules:
    rules = config.broker
    return TransactionRules(
        store.config.store_host,
        timeout_ms=rules.transaction_timeout_s * 1000,
        most_checks=rules.transaction_checks,
        check_s=rules.transaction_check_s,
        oldest_ms=config.store.retention_h * HOUR_MS,
    )


def _publishing(config: Config, store: MessageStore, tables: BrokerTables, intake: Intake, address: str) -> Publishing:
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


def _data_handlers(
    config: Config,
    store: MessageStore,
    tables: BrokerTables,
    storing: tuple[Intake, Publishing],
    address: str,
    now_ms: Clock,
) -> dict[int, Handle]:
    """Return the handlers of send, pull, send-back and reply."""
    rules, added, (intake, publishing) = config.broker, _added(config), storing
    host = store.config.store_host
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
    pulls = _pulls(config, store, tables, intake, address)
    return merged(sends.handlers(), replies.handlers(), send_backs.handlers(), pulls.handlers())


def _pulls(config: Config, store: MessageStore, tables: BrokerTables, intake: Intake, address: str) -> Pulls:
    rules = config.broker
    return Pulls(
        PullRules(
            address,
            readable=bool(rules.permission & READ),
            property_filter=rules.property_filter,
            long_poll=rules.long_poll,
            corrects=config.replication.role != SLAVE_ROLE,
        ),
        PullTables(
            tables.topics,
            tables.groups,
            tables.clients,
            tables.offsets,
            tables.arrivals,
            tables.stats,
            moved=MovedEvents(intake, config.box.name).note,
        ),
        store,
    )
