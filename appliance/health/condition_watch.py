"""Gathers every ten seconds what the conditions are decided from: store, disk, groups, uplink, clock."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import trio

from appliance.broker.broker_tables import BrokerTables
from appliance.broker.tables.groups import FIRST_GROUPS, INNER_PREFIX
from appliance.broker.tables.saving import load_table
from appliance.broker.tables.topics import DEAD_PREFIX
from appliance.health.condition_memory import ConditionMemory
from appliance.health.condition_rules import (
    GapSeen,
    SpaceSeen,
    clock_conditions,
    gap_conditions,
    replication_conditions,
    space_conditions,
)
from appliance.health.condition_rules import uplink_conditions as decide_uplink
from appliance.health.conditions import Condition
from appliance.health.group_watch import DeadSeen, GroupLimits, GroupSeen, GroupWatch, dead_letter_conditions
from appliance.health.lag import Ages, lag_of
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue
from storage_driver.store import MessageStore

if TYPE_CHECKING:
    from appliance.replication.role import ReplicationRole
    from uplink_spark.box.shipper import Uplink

log = logging.getLogger("appliance")
LOOK_S = 10.0
PER_BREATH, NAMES_PER_BREATH = 50, 1000  # 5,000 groups of 4 queues: 40 ms of processor time a look, in many parts
TOOLS = "rocketbox_"  # groups of the box's own commands, which come and go


class ConditionSources(NamedTuple):
    """What is looked at."""

    store: MessageStore
    tables: BrokerTables
    uplink: Uplink | None
    now_ms: Callable[[], int]
    clock_trusted: Callable[[], bool]
    groups: GroupLimits = GroupLimits()
    replication: ReplicationRole | None = None


Disk = Callable[[], tuple[float, int, float | None]]  # share used, bytes used, hours until full


class ConditionWatch:
    """The conditions at the last look."""

    def __init__(
        self,
        looked: ConditionSources,
        *,
        disk: Disk,
        memory: ConditionMemory | None = None,
        uptime_s: Callable[[], float] = trio.current_time,
    ) -> None:
        """memory: of the watches before this one, which a member of a group has one of for each standing."""
        self._looked, self._disk, self._uptime_s = looked, disk, uptime_s
        self._memory = memory if memory is not None else ConditionMemory()
        self._memory.forget(uptime_s())
        self._ages = Ages(looked.store)
        self._file = looked.store.state_file("groups_seen", folder="rocketbox")
        known = load_table(self._file, "groups seen").get("groups")
        known = known if isinstance(known, list) else []
        self._groups = self._memory.groups or GroupWatch(known, uptime_s(), looked.groups)
        self._saved = known
        self._found: list[Condition] = []

    def now(self) -> list[Condition]:
        """Return the conditions of the last look, and whether a group takes messages at this moment."""
        told = self._told_of_copies()
        if told["role"] != "member":
            return self._found
        from appliance.health.member_conditions import quorum_conditions  # few boxes are members of a group

        return quorum_conditions(told, self._lasts(self._uptime_s())) + self._found

    def _told_of_copies(self) -> Mapping[str, Any]:
        """Return what the health object says of replication; a box without it has no role."""
        return self._looked.replication.told() if self._looked.replication is not None else {"role": ""}

    def _lasts(self, now_s: float) -> Callable[[str, bool], float]:
        return lambda name, holds: self._memory.lasts(f"member:{name}", holds, now_s)

    def told(self) -> dict[str, dict[str, object]]:
        """Return what else the health object tells: how far the scrub is, and the uplink's line where there is one."""
        store = self._looked.store.statistics()
        told: dict[str, dict[str, object]] = {}
        told["scrub"] = {"passes": store.scrub_passes, "left_s": round(store.scrub_left_s)}
        if self._looked.replication is not None:
            told["replication"] = dict(self._looked.replication.told())
        if self._looked.uplink is None:
            return told
        seen = self._looked.uplink.statistics()
        line = {
            "gateway": seen.address,
            "connected": seen.connected,
            "paused": seen.paused,
            "unshipped_bytes": seen.unshipped_bytes,
            "oldest_s": round(seen.oldest_unshipped_s),
            "last_receipt_s": None if seen.last_receipt_s is None else round(seen.last_receipt_s),
            "gaps": seen.gaps,
            "last_error": seen.last_error,
        }
        return told | {"uplink": line}

    async def run(self) -> None:
        """Look every ten seconds until cancelled; a disk that cannot be read leaves the last look standing."""
        while True:
            try:
                await self.look()
            except OSError as exc:
                log.warning("event=conditions_not_checked reason=%r next_step=rocketbox_doctor", str(exc))
            await trio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look once. Raises OSError."""
        looked, now_s = self._looked, self._uptime_s()
        seen = looked.store.statistics()
        untrusted_s = self._memory.lasts("clock", not looked.clock_trusted(), now_s)
        found = clock_conditions(looked.now_ms(), seen.latest_ms, untrusted_s)
        copies = self._told_of_copies()
        found += space_conditions(self._space()) + self._uplink(now_s) + self._replication(copies, now_s)
        if copies["role"] != "member" or copies["serves"]:  # else clients are at another box of the group
            self._memory.groups = self._groups
            found += self._groups.look([one async for one in self._group_rows()], now_s)
        self._found = found + dead_letter_conditions(self._dead_letters())
        await self._save()

    def _space(self) -> SpaceSeen:
        store, uplink = self._looked.store, self._looked.uplink
        seen, (used, used_bytes, full_in_h) = store.statistics(), self._disk()
        return SpaceSeen(
            used=used,
            used_bytes=used_bytes,
            full_in_h=full_in_h,
            full=seen.full,
            log_bytes=seen.end - seen.first,
            unshipped_bytes=uplink.statistics().unshipped_bytes if uplink else 0,
            segment_bytes=store.segment_bytes,
            quota_bytes=store.config.retention.quota_bytes,
        )

    def _uplink(self, now_s: float) -> list[Condition]:
        uplink = self._looked.uplink
        if uplink is None:
            return []
        seen, state = uplink.statistics(), uplink.shipper.state
        down_s = self._memory.lasts("uplink", not seen.connected, now_s)
        limit, trusted = (state.quota_bytes, state.config.when_full), self._looked.clock_trusted()
        found = decide_uplink(seen, down_s=down_s, limit_bytes=limit[0], when_full=limit[1], trusted=trusted)
        gaps = (gap_seen(gap.facts, gap.end - gap.start) for gap in state.ledger.gaps.log.gaps)
        return found + gap_conditions(gaps, self._looked.now_ms())

    def _replication(self, told: Mapping[str, Any], now_s: float) -> list[Condition]:
        if not told["role"]:
            return []
        if told["role"] == "member":
            from appliance.health.member_conditions import certificate_conditions, member_conditions

            trusted, now_ms = self._looked.clock_trusted(), self._looked.now_ms()
            return member_conditions(told, now_ms, self._lasts(now_s)) + certificate_conditions(
                told, now_ms, trusted=trusted
            )
        there = told["slaves"] if told["role"] == "master" else told["connected"]
        return replication_conditions(told, self._memory.lasts("replication", not there, now_s))

    async def _group_rows(self) -> AsyncIterator[GroupSeen]:
        tables = self._looked.tables
        topics_of: dict[str, list[str]] = defaultdict(list)
        for number, name in enumerate(list(tables.offsets.table())):
            if number % NAMES_PER_BREATH == 0:
                await trio.lowlevel.checkpoint()
            topic, _, group = name.partition("@")
            if is_watched(group) and not topic.startswith(DEAD_PREFIX) and tables.topics.get(topic) is not None:
                topics_of[group].append(topic)
        self._ages.looks = 0
        for number, (group, topics) in enumerate(topics_of.items()):
            if number % PER_BREATH == 0:
                await trio.lowlevel.checkpoint()
            online = tables.clients.consumers(group)
            if tables.groups.get(group) is not None and not (online and online.broadcasting):
                yield await self._group(group, topics, len(online.members) if online else 0)

    async def _group(self, group: str, topics: list[str], members: int) -> GroupSeen:
        total, worst, now_ms = 0, ("", 0.0), self._looked.now_ms()
        for topic in topics:
            lag = lag_of(self._looked, group, topic)
            total += lag.messages
            oldest_ms = await self._ages.oldest_ms(lag.at) if lag.at and members else None
            if oldest_ms is not None and (now_ms - oldest_ms) / 1000 >= worst[1]:
                worst = topic, (now_ms - oldest_ms) / 1000
        return GroupSeen(group, members, total, *(worst if worst[0] else ("", None)))

    def _dead_letters(self) -> Iterator[DeadSeen]:
        store, tables = self._looked.store, self._looked.tables
        read: dict[str, dict[int, int]] = defaultdict(dict)  # topic -> queue -> the farthest that anybody has read
        for name, queues in tables.offsets.table().items():
            if name.startswith(DEAD_PREFIX):
                farthest = read[name.partition("@")[0]]
                for queue_id, offset in queues.items():
                    farthest[queue_id] = max(offset, farthest.get(queue_id, 0))
        topics = [topic.name for topic in tables.topics.all() if topic.name.startswith(DEAD_PREFIX)]
        tables.resent.keep(topics)
        for topic in topics:
            unread = total = 0
            for queue_id in store.queues(topic):
                queue = MessageQueue(topic, queue_id)
                end = store.max_offset(queue)
                low = max(store.min_offset(queue), read[topic].get(queue_id, 0))
                total += end
                unread += max(0, end - low) - tables.resent.among(topic, queue_id, low, end)
            yield DeadSeen(topic.removeprefix(DEAD_PREFIX), unread, total)

    async def _save(self) -> None:
        known = self._groups.known
        if known != self._saved:
            await self._file.write({"groups": known})
            self._saved = known


def is_watched(group: str) -> bool:
    """Tell whether a group is an application's: not the broker's own, nor one of the box's commands."""
    return group not in FIRST_GROUPS and not group.startswith((INNER_PREFIX, TOOLS))


def gap_seen(facts: Mapping[str, object], length: int) -> GapSeen:
    """Return a gap of the uplink's ledger as the rules take it."""
    records, declared_ms = facts.get("records"), facts.get("declared")
    return GapSeen(
        str(facts["class"]),
        str(facts["reason"]),
        length,
        records if isinstance(records, int) else None,
        declared_ms if isinstance(declared_ms, int) else 0,
    )
