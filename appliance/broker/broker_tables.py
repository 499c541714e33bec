"""The state of one broker: loaded from its files before the handlers are made over it."""

import logging
import time
from collections.abc import Callable

import trio

from appliance.broker.acknowledging import SendAcknowledging
from appliance.broker.admin.stats import BrokerCounters
from appliance.broker.consume.queue_locks import QueueLocks
from appliance.broker.delay.levels import parse_levels
from appliance.broker.intake import Space
from appliance.broker.publish.dedup import DedupRules, DedupWindow
from appliance.broker.publish.questions import Questions
from appliance.broker.publish.recent import recent_messages
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.compile_pace import CompilePace
from appliance.broker.tables.creations import Creations
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.request_modes import RequestModes
from appliance.broker.tables.resent import Resent
from appliance.broker.tables.saving import KeptFiles, TableFile
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.configuration.settings import Config
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore

Clock = Callable[[], int]
log = logging.getLogger("appliance.broker")


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
    compile_pace: CompilePace  # of all front doors: an address has one budget


def make_tables(
    config: Config, store: MessageStore, arrivals: Arrivals, *, files: KeptFiles | None = None, now_ms: Clock
) -> BrokerTables:
    """Load the tables, and make the topics again that the log knows and the saved table does not."""
    rules, limits, files = config.broker, config.limits, files or store
    topics = _topic_table(config, store, files.state_file("topics"), now_ms)
    topics.recover(store.topics_since(topics.as_of))
    groups_file = files.state_file("subscriptionGroup")
    groups = GroupTable(groups_file, auto_create=rules.auto_create_groups, most=limits.groups, now_ms=now_ms)
    clients = ClientTable(most=limits.clients, now_ms=now_ms)
    dedup = DedupWindow(
        DedupRules(rules.dedup_entries, rules.dedup_s, frozenset(rules.dedup_topics), rules.dedup_topics_s),
        now_s=time.monotonic,
        durable=lambda: store.committed,
        answered=SendAcknowledging(store, topics).reached,
        connected=clients.connected,
    )
    creations_file = files.state_file("creations", folder="rocketbox")
    creations = Creations(creations_file, per_hour=limits.created_per_hour, now_ms=now_ms)
    topics.creations = groups.creations = creations
    modes = RequestModes(files.state_file("messageRequestMode"))
    topics.on_change(lambda name: None if topics.get(name) else modes.drop_topic(name))
    return BrokerTables(
        topics,
        groups,
        OffsetTable(files.state_file("consumerOffset")),
        clients,
        Questions(),
        QueueLocks(trio.current_time),
        arrivals,
        dedup,
        Space(),
        BrokerCounters(config.box.cluster, now_ms=now_ms),
        creations,
        Resent(files.state_file("resent", folder="rocketbox")),
        modes,
        CompilePace(trio.current_time),
    )


def _topic_table(config: Config, store: MessageStore, file: TableFile, now_ms: Clock) -> TopicTable:
    rules = TopicRules(
        cluster=config.box.cluster,
        broker=config.box.name,
        auto_create=config.broker.auto_create_topics,
        template_queues=config.store.queues_default,
        delay_levels=len(parse_levels(config.broker.delay_levels)),
        trace_topic=config.broker.trace_topic,
        most=config.limits.topics,
    )
    return TopicTable(file, rules, now_ms=now_ms, log_end=lambda: store.end)


async def rebuild_dedup(tables: BrokerTables, store: MessageStore, *, now_ms: Clock) -> None:
    """Know what was sent just before a restart: a producer without its answer sends it again now."""
    if not tables.dedup.enabled:
        return
    since_ms = now_ms() - int(tables.dedup.keep_s * 1000)
    try:
        found = await trio.to_thread.run_sync(recent_messages, store, since_ms)
    except OSError as exc:  # a bad sector: what is sent again is stored twice at worst
        log.error("event=dedup_not_rebuilt reason=%r", str(exc))
        return
    tables.dedup.rebuild(found, age_s=lambda message: (now_ms() - message.stored_ms) / 1000)
