"""Composes the handlers for tools: topics, groups, progress, clients, statistics."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.broker.admin.clients import ClientCalls
from appliance.broker.admin.groups import GroupAdmin
from appliance.broker.admin.progress import OffsetCommands, ProgressTables
from appliance.broker.admin.runtime_info import DiskFacts, RuntimeInfo
from appliance.broker.admin.stats import BrokerCounters
from appliance.broker.admin.topics import TopicAdmin, TopicAdminTables
from appliance.broker.delay.levels import DelayLevels
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.resent import Resent
from appliance.broker.tables.topics import TopicTable
from appliance.requests import Handle, merged
from storage_driver.store import MessageStore


@dataclass(frozen=True, slots=True)
class AdminTables:
    """State that administration reads and changes."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    arrivals: Arrivals
    stats: BrokerCounters
    resent: Resent


@dataclass(frozen=True, slots=True)
class AdminFacts:
    """Configuration and other parts that administration shows."""

    broker: str
    address: str
    properties: Callable[[], Mapping[str, object]]
    waiting_timers: Callable[[], int]


def admin_handlers(
    store: MessageStore, tables: AdminTables, delays: DelayLevels, facts: AdminFacts, *, now_ms: Callable[[], int]
) -> dict[int, Handle]:
    """Return the handlers of the tools."""
    t, broker, address = tables, facts.broker, facts.address

    def disk() -> DiskFacts:
        usage = shutil.disk_usage(store.config.root)
        return DiskFacts(usage.total, usage.used, usage.free)

    topic_tables = TopicAdminTables(t.topics, t.offsets, t.clients, t.arrivals, t.stats)
    progress_tables = ProgressTables(t.topics, t.groups, t.offsets, t.clients, t.stats, t.arrivals)
    return merged(
        TopicAdmin(topic_tables, store, broker=broker, address=address, now_ms=now_ms).handlers(),
        GroupAdmin(t.groups, t.offsets, t.clients, address=address).handlers(),
        OffsetCommands(progress_tables, store, broker=broker, address=address, delay_offsets=delays.offsets).handlers(),
        ClientCalls(t.clients, store, broker=broker, consumed=t.resent.note).handlers(),
        RuntimeInfo(
            store,
            t.stats,
            delays,
            disk=disk,
            properties=facts.properties,
            now_ms=now_ms,
            waiting_timers=facts.waiting_timers,
        ).handlers(),
    )
