"""What the first page shows, as plain values for its template: bounded, the most pressing first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import trio

from appliance.broker.topics import DEAD_PREFIX, RETRY_PREFIX
from appliance.lag import Ages, lag_of
from appliance.metrics.topics import age_of, is_system, oldest_unshipped_s
from appliance.page import words
from appliance.page.history import History
from appliance.watched import Watched
from storage_driver.record import MessageQueue
from watchdog.notes import read_lines

MOST_ROWS = 100
MOST_VERDICTS, MOST_BOOTS, MOST_GAPS = 8, 8, 10
PER_BREATH = 100
OWN_PRODUCER = "CLIENT_INNER_PRODUCER"  # every client library has one, for what it sends back itself
Row = dict[str, Any]


class Overview:
    """Gathers the page's values; keeps the ages of messages that groups stand at."""

    def __init__(self, watched: Watched, history: History) -> None:
        self._watched, self._history, self._ages = watched, history, Ages(watched.store)

    async def values(self) -> Row:
        """Return everything that the first page shows."""
        watched = self._watched
        self._ages.looks = 0
        topics, groups = await topic_rows(watched), await group_rows(watched, self._ages)
        past = await trio.to_thread.run_sync(past_of, watched.data)
        return {
            "box": watched.config.box,
            "health": health_of(watched),
            "tiles": tiles(watched, self._history),
            "span": words.span(self._history.span_s),
            "topics": topics,
            "groups": groups,
            "clients": client_rows(watched),
            "disk": await disk_of(watched),
            "uplink": await uplink_of(watched),
            "now": words.moment(watched.now_ms()),
            **past,
        }


def health_of(watched: Watched) -> Row:
    """Return the health object; a box that nothing watches says what its store says."""
    if watched.board is not None:
        return watched.board.snapshot()
    failure = watched.store.evidence().failure
    return {"state": "failing" if failure else "ok", "reasons": [], "version": "-", "slot": "-", "proof": {}}


def tiles(watched: Watched, history: History) -> list[Row]:
    """Return the figures with their curves."""
    made = [
        _tile(
            "Messages in", words.rate, history.rates("messages_in"), "/s", hint="stored, mean of the last ten seconds"
        ),
        _tile("Messages out", words.rate, history.rates("messages_out"), "/s", hint="pulled by consumers"),
        _tile("Bytes in", words.size, history.rates("bytes_in"), "/s", hint="message bytes"),
        _tile("Sync", lambda ms: words.span(ms / 1000) if ms else "–", history.sync_ms(), hint="mean time to disk"),
        _tile("Connections", words.count, history.levels("connections"), hint="both ports"),
    ]
    if watched.uplink is not None:
        made.append(_tile("Not shipped", words.size, history.levels("unshipped"), hint="waits for the gateway"))
    return made


def _tile(name: str, shown: Any, values: Sequence[float], unit: str = "", *, hint: str) -> Row:
    recent = values[-2:]  # ten seconds
    return {
        "name": name,
        "value": shown(sum(recent) / len(recent)) if recent else "–",
        "unit": unit if recent else "",
        "most": shown(max(values)) + unit if values else "–",
        "line": words.curve(values),
        "area": words.curve(values, closed=True),
        "hint": hint,
    }


async def topic_rows(watched: Watched) -> Row:
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
    return {"rows": own[:MOST_ROWS], "count": len(own), "system": [row for row in found if row["system"]][:MOST_ROWS]}


async def group_rows(watched: Watched, ages: Ages) -> Row:
    """Return the groups that are furthest behind first."""
    clients, rows = watched.tables.clients, list[Row]()
    pairs = [name.partition("@")[::2] for name in watched.tables.offsets.table()]
    for topic, group in pairs:
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


def client_rows(watched: Watched) -> Row:
    """Return who is connected, by client id."""
    clients = watched.tables.clients
    found: dict[tuple[str, int], Row] = {}
    for kind, names, members_of in (
        ("consumes as", clients.consumer_groups(), _consumers(watched)),
        ("produces as", clients.producer_groups(), clients.producers),
    ):
        for name in names:
            if name == OWN_PRODUCER:
                continue
            for peer, member in members_of(name).items():
                row = found.setdefault((member.client_id, peer.id), _client(watched, peer, member))
                row["groups"].append(f"{kind} {name}")
    rows = sorted(found.values(), key=itemgetter("id"))
    languages = Counter(row["language"] for row in rows)
    return {"rows": rows[:MOST_ROWS], "count": len(rows), "languages": languages.most_common()}


def _consumers(watched: Watched) -> Any:
    def members(name: str) -> Any:
        group = watched.tables.clients.consumers(name)
        return group.members if group else {}

    return members


def _client(watched: Watched, peer: Any, member: Any) -> Row:
    host, port = peer.remote[:2]
    return {
        "id": member.client_id or "no id yet",
        "address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "language": member.language,
        "version": member.version,
        "seen_s": max(0.0, (watched.now_ms() - member.seen_ms) / 1000),
        "groups": [],
    }


async def disk_of(watched: Watched) -> Row:
    """Return how full the disk is, when it will be, and what the log holds."""
    seen = watched.store.statistics()
    age_ms = await age_of(watched, seen.first)
    rules = watched.config.store
    return {
        "percent": seen.disk_percent,
        "full_in_s": seen.full_in_h * 3600 if seen.full_in_h is not None else None,
        "log_bytes": seen.end - seen.first,
        "oldest_s": age_ms / 1000 if age_ms is not None else None,
        "refused": seen.full,
        "damaged": seen.damaged_ranges,
        "quota_gib": rules.quota_gib,
        "retention_h": rules.retention_h,
        "messages": seen.messages,
        "slowest_sync_s": seen.slowest_sync_s,
    }


async def uplink_of(watched: Watched) -> Row | None:
    """Return how the log leaves the box, None without an uplink."""
    if watched.uplink is None:
        return None
    from uplink_spark.report import gap_rows

    seen, ledger = watched.uplink.statistics(), watched.uplink.shipper.state.ledger
    gaps = gap_rows(ledger.gap_log.gaps[-MOST_GAPS:], ledger.delivered)
    return {
        "seen": seen,
        "gaps": gaps[::-1],
        "share": _share(seen.receipted_bytes, seen.unshipped_bytes),
        "oldest_s": await oldest_unshipped_s(watched, watched.uplink),
    }


def _share(done: int, waiting: int) -> float:
    return 100.0 * done / (done + waiting) if done + waiting else 100.0


def past_of(data: Path) -> dict[str, list[Row]]:
    """Return the newest recovery verdicts and boots. Blocks."""
    verdicts = []
    for path in sorted((data / "verdicts").glob("*.json"), key=lambda path: path.stat().st_mtime)[-MOST_VERDICTS:]:
        try:
            verdicts.append({"file": path.name, **json.loads(path.read_text())})
        except (OSError, ValueError, TypeError):
            verdicts.append({"file": path.name, "verdict": "unreadable"})
    boots = read_lines(data / "watchdog/boots.jsonl")[-MOST_BOOTS:]
    return {"verdicts": verdicts[::-1], "boots": boots[::-1]}
