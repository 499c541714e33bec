"""What the first page shows, as plain values for its template: bounded, the most pressing first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import trio

from appliance.box_view import BoxView
from appliance.broker.tables.clients import REMOTING
from appliance.broker.tables.topics import DEAD_PREFIX, RETRY_PREFIX
from appliance.health.lag import Ages, lag_of
from appliance.interfaces import Interfaces, read_interfaces, remembered
from appliance.metrics.topics import age_of, is_system, oldest_unshipped_s
from appliance.page import words
from appliance.page.history import HOUR, REACHES, CurveHistory, Point, Reach
from appliance.page.vitals import HostVitals
from netstack.serving.addresses import host_port, is_loopback
from netstack.wire.versions import version_text
from storage_driver.record import MessageQueue
from watchdog.notes import read_lines

MOST_ROWS, MOST_INTERFACES = 100, 8
CURVE_PLACES, PERCENT = 120, " %"
LINK_LOCAL = "fe80:"
MOST_VERDICTS, MOST_BOOTS, MOST_GAPS = 8, 8, 10
PER_BREATH = 100
GIB = 1 << 30
OWN_PRODUCER = "CLIENT_INNER_PRODUCER"  # every client library has one, for what it sends back itself
Row = dict[str, Any]


def _replication(watched: BoxView) -> Row:
    """Return what the box says of copies of its log, and the card of its group."""
    told = watched.replication.told() if watched.replication else None
    if told is None or told["role"] != "member":
        return {"replication": told, "group_card": None}
    from appliance.page.members import group_card  # a box alone has none

    return {"replication": told, "group_card": group_card(told)}


class Overview:
    """Gathers the page's values; keeps the ages of messages that groups stand at."""

    def __init__(self, watched: BoxView, history: CurveHistory) -> None:
        self._watched, self._history, self._ages = watched, history, Ages(watched.store)
        self._interfaces = remembered(read_interfaces)

    async def values(self, reach_name: str = HOUR.name) -> Row:
        """Return everything that the first page shows; the curves reach back an hour or a week."""
        watched, history = self._watched, self._history
        reach = REACHES.get(reach_name, HOUR)
        now_ms = watched.now_ms()
        curves = Curves(history.rows[reach.name].since(now_ms), reach, now_ms, newest=history.newest)
        self._ages.looks = 0
        topics, groups = await topic_rows(watched), await group_rows(watched, self._ages)
        past = await trio.to_thread.run_sync(past_of, watched.data)
        return {
            "box": watched.config.box,
            "health": health_of(watched),
            "reach": reach.name,
            "tiles": tiles(curves, with_uplink=watched.uplink is not None),
            "vitals": vital_tiles(curves),
            "machine": machine_of(history.vitals, self._interfaces()),
            "topics": topics,
            "groups": groups,
            "clients": await client_rows(watched),
            "disk": await disk_of(watched),
            "uplink": await uplink_of(watched),
            **_replication(watched),
            "now": words.moment(watched.now_ms()),
            **past,
        }


def health_of(watched: BoxView) -> Row:
    """Return the health object; a box that nothing watches says what its store says."""
    if watched.board is not None:
        return watched.board.snapshot()
    failure = watched.store.evidence().failure
    return {"state": "failing" if failure else "ok", "reasons": [], "version": "-", "slot": "-", "proof": {}}


class Curves:
    """The points of a reach in the places that a curve has; the figure beside a curve is the newest."""

    def __init__(self, points: Sequence[Point], reach: Reach, now_ms: int, *, newest: Point | None) -> None:
        self._places: list[list[Point]] = [[] for _ in range(CURVE_PLACES)]
        self._newest = newest
        width_ms = 1000 * reach.span_s / CURVE_PLACES
        for point in points:
            self._places[CURVE_PLACES - 1 - int((now_ms - point.at_ms) / width_ms)].append(point)

    def has(self, figure: str) -> bool:
        """Tell whether a figure was ever anything but 0."""
        at = Point._fields.index(figure)
        return any(point[at] for place in self._places for point in place)

    def tile(self, name: str, figure: str, shown: Callable[[float], str], unit: str = "", *, hint: str) -> Row:
        """Return one figure with its curve."""
        at = Point._fields.index(figure)
        values = [sum(each[at] for each in place) / len(place) if place else None for place in self._places]
        known = [point[at] for place in self._places for point in place]
        top = 1.0 if unit == PERCENT else 0.0
        return {
            "name": name,
            "value": shown(self._newest[at]) if self._newest else "–",
            "unit": unit if self._newest else "",
            "most": shown(max(known)) + unit if known else "–",
            "line": words.curve(values, top=top),
            "area": words.curve(values, closed=True, top=top),
            "hint": hint,
        }


def tiles(curves: Curves, *, with_uplink: bool) -> list[Row]:
    """Return the box's rates with their curves."""
    made = [
        curves.tile("Messages in", "messages_in", words.rate, "/s", hint="stored, mean of the last ten seconds"),
        curves.tile("Messages out", "messages_out", words.rate, "/s", hint="pulled by consumers"),
        curves.tile("Bytes in", "bytes_in", words.size, "/s", hint="message bytes"),
        curves.tile("Sync", "sync_ms", lambda ms: words.span(ms / 1000) if ms else "–", hint="mean time to disk"),
        curves.tile("Connections", "connections", words.count, hint="both ports"),
    ]
    if with_uplink:
        made.append(curves.tile("Not shipped", "unshipped", words.size, hint="not shipped yet"))
    return made


def vital_tiles(curves: Curves) -> list[Row]:
    """Return how loaded the machine is, with curves."""
    made = [
        curves.tile("Processor", "processor", words.share, PERCENT, hint="busy, all programs, mean of ten seconds"),
        curves.tile("Memory", "memory", words.share, PERCENT, hint="not available to programs"),
        curves.tile("Disk", "disk", words.share, PERCENT, hint="of the file system that holds the data"),
    ]
    if curves.has("temperature"):
        made.append(curves.tile("Temperature", "temperature", words.degrees, hint="hottest sensor"))
    return made


def machine_of(vitals: HostVitals, interfaces: Interfaces) -> Row:
    """Return what else there is to know of the machine."""
    reached = {
        name: [text for text in texts if not is_loopback(text) and not text.startswith(LINK_LOCAL)]
        for name, texts in sorted(interfaces.items())
    }
    return {
        "memory_bytes": vitals.memory_bytes,
        "own_bytes": vitals.own_bytes,
        "up_s": vitals.up_s or None,
        "addresses": [(name, texts) for name, texts in reached.items() if texts][:MOST_INTERFACES],
    }


async def topic_rows(watched: BoxView) -> Row:
    """Return the busiest topics, applications' before the system's, and how many there are."""
    stats, store = watched.tables.stats, watched.store
    found: list[Row] = []
    for number, topic in enumerate(watched.tables.topics.all()):
        queues = [MessageQueue(topic.name, queue_id) for queue_id in store.queues(topic.name)]
        held = sum(store.max_offset(queue) - store.min_offset(queue) for queue in queues)
        system = is_system(watched, topic.name) or topic.name.startswith((RETRY_PREFIX, DEAD_PREFIX))
        found.append(
            {
                "name": topic.name,
                "system": system and not (topic.name.startswith(DEAD_PREFIX) and held),
                "dead": topic.name.startswith(DEAD_PREFIX),
                "rate": stats.put_tps(topic.name),
                "held": held,
                "queues": topic.queue_count,
                "permission": {0: "none", 2: "write", 4: "read", 6: "read, write"}.get(topic.perm, topic.perm),
            }
        )
        if number % PER_BREATH == 0:
            await trio.lowlevel.checkpoint()
    found.sort(key=lambda row: (row["system"], -row["rate"], -row["held"], row["name"]))
    own = [row for row in found if not row["system"]]
    others, on_disk = [row for row in found if row["system"]], sum(row["held"] for row in found)
    return {"rows": own[:MOST_ROWS], "count": len(own), "system": others[:MOST_ROWS], "held": on_disk}


async def group_rows(watched: BoxView, ages: Ages) -> Row:
    """Return the groups that are furthest behind first."""
    clients, rows = watched.tables.clients, list[Row]()
    for number, name in enumerate(list(watched.tables.offsets.table())):
        if number % PER_BREATH == 0:
            await trio.lowlevel.checkpoint()
        topic, group = name.partition("@")[::2]
        if watched.tables.topics.get(topic) is None or group.startswith("CID_RMQ_SYS_"):
            continue
        lag = lag_of(watched, group, topic)
        oldest_ms = await ages.oldest_ms(lag.at) if lag.at else None
        online = clients.consumers(group)
        members = len(online.members) if online else 0
        rows.append(
            {
                "group": group,
                "topic": topic,
                "lag": lag.messages,
                "age_s": (watched.now_ms() - oldest_ms) / 1000 if oldest_ms is not None else None,
                "members": members,
                "rate": watched.tables.stats.consume_tps(group, topic),
                "stuck": bool(lag.messages and not members),
                "retry": topic.startswith(RETRY_PREFIX),
            }
        )
    shown = [row for row in rows if row["lag"] or not row["retry"]]
    shown.sort(key=lambda row: (-row["lag"], row["group"], row["topic"]))
    return {"rows": shown[:MOST_ROWS], "count": len(shown)}


async def client_rows(watched: BoxView) -> Row:
    """Return who is connected, by client id."""
    clients = watched.tables.clients
    found: dict[tuple[str, int], Row] = {}
    for kind, names, members_of in (
        ("consumes as", clients.consumer_groups(), _consumers(watched)),
        ("produces as", clients.producer_groups(), clients.producers),
    ):
        for number, name in enumerate(names):
            if number % PER_BREATH == 0:
                await trio.lowlevel.checkpoint()
            if name == OWN_PRODUCER:
                continue
            for peer, member in members_of(name).items():
                row = found.setdefault((member.client_id, peer.id), _client(watched, peer, member))
                row["groups"].append(f"{kind} {name}")
    rows = sorted(found.values(), key=itemgetter("id"))
    languages = Counter(row["language"] for row in rows)
    return {"rows": rows[:MOST_ROWS], "count": len(rows), "languages": languages.most_common()}


def _consumers(watched: BoxView) -> Any:
    def members(name: str) -> Any:
        group = watched.tables.clients.consumers(name)
        return group.members if group else {}

    return members


def _client(watched: BoxView, peer: Any, member: Any) -> Row:
    return {
        "id": member.client_id or "no id yet",
        "address": host_port(*peer.remote[:2]),
        "language": member.language,
        "version": version_text(member.version) + ("" if member.protocol == REMOTING else " gRPC"),
        "seen_s": max(0.0, (watched.now_ms() - member.seen_ms) / 1000),
        "groups": [],
    }


async def disk_of(watched: BoxView) -> Row:
    """Return how full the disk is, when it will be, and what the log holds."""
    seen = watched.store.statistics()
    age_ms = await age_of(watched, seen.first)
    rules, log_bytes = watched.config.store, seen.end - seen.first
    unshipped = watched.uplink.statistics().unshipped_bytes if watched.uplink else 0
    return {
        "percent": seen.disk_percent,
        "quota": quota_of(log_bytes, unshipped, rules.quota_gib * GIB),
        "full_in_s": seen.full_in_h * 3600 if seen.full_in_h is not None else None,
        "log_bytes": log_bytes,
        "oldest_s": age_ms / 1000 if age_ms is not None else None,
        "refused": seen.full,
        "damaged": seen.damaged_ranges,
        "quota_gib": rules.quota_gib,
        "retention_h": rules.retention_h,
        "messages": seen.messages,
        "slowest_sync_s": seen.slowest_sync_s,
    }


def quota_of(log_bytes: int, unshipped: int, quota_bytes: int) -> Row | None:
    """Return the bar of the log in its quota, None without one: what is shipped, then what is not, in percent."""
    if not quota_bytes:
        return None
    whole = max(quota_bytes, log_bytes)
    waiting = min(unshipped, log_bytes)
    return {
        "bytes": quota_bytes,
        "log_bytes": log_bytes,
        "unshipped": waiting,
        "shipped_percent": round(100 * (log_bytes - waiting) / whole, 1),
        "unshipped_percent": round(100 * waiting / whole, 1),
        "limit_percent": round(100 * quota_bytes / whole, 1),
        "over": log_bytes > quota_bytes,
    }


async def uplink_of(watched: BoxView) -> Row | None:
    """Return how the log leaves the box, None without an uplink."""
    if watched.uplink is None:
        return None
    from uplink_spark.box.report import gap_rows

    seen, ledger = watched.uplink.statistics(), watched.uplink.shipper.state.ledger
    gaps = gap_rows(ledger.gaps.log.gaps[-MOST_GAPS:], ledger.gaps.delivered)
    return {
        "seen": seen,
        "gaps": gaps[::-1],
        "share": _share(seen.receipted_bytes, seen.unshipped_bytes),
        "oldest_s": await oldest_unshipped_s(watched, watched.uplink),
    }


def _share(done: int, waiting: int) -> float:
    return 100.0 * done / (done + waiting) if done + waiting else 100.0


def _verdict(told: Row) -> Row:
    """Return what is shown of a verdict. Raises what a damaged one may."""
    log = told.get("log", {})
    numbers = {name: int(log.get(name, 0)) for name in ("torn_bytes", "scanned_bytes")}
    shown = {"verdict": str(told["verdict"]), "seconds": float(told.get("seconds", 0))}
    shown |= {"start": str(told["start"])} if "start" in told else {}
    return shown | {"log": {**numbers, "quarantined": list(log.get("quarantined", ()))}}


def past_of(data: Path) -> dict[str, list[Row]]:
    """Return the newest recovery verdicts and boots. Blocks."""
    verdicts = []
    found = [path for path in (data / "verdicts").glob("*.json") if path.is_file()]
    for path in sorted(found, key=lambda path: path.stat().st_mtime)[-MOST_VERDICTS:]:
        try:
            verdicts.append({"file": path.name, **_verdict(json.loads(path.read_text()))})
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            verdicts.append({"file": path.name, "verdict": "unreadable"})
    boots = read_lines(data / "watchdog/boots.jsonl")[-MOST_BOOTS:]
    return {"verdicts": verdicts[::-1], "boots": boots[::-1]}
