"""Reads the statistics of every part into families that the Prometheus library writes out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import trio
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from appliance.box_view import BoxView
from appliance.broker.access.permissions import ACCESS
from appliance.broker.access.request_table import AccessClass
from appliance.health.conditions import CATALOGUE, STATES
from appliance.health.lag import Ages
from appliance.metrics import families
from appliance.metrics.families import COUNTER, FAMILIES, HISTOGRAM
from appliance.metrics.machine import EXIT_RESULTS, UPDATE_RESULTS, MachineNotes
from appliance.metrics.topics import oldest_unshipped_s, read_topics
from netstack.serving.governor import REFUSED
from netstack.serving.limits import REFUSALS
from netstack.wire.codes import RequestCode, ResponseCode, names_of
from watchdog.feed import FeedStatistics
from watchdog.reset_reason import RESET_REASONS

FIRST_BUCKET, BUCKETS = 6, 25  # of powers of two of microseconds: 64 µs to 16 s
REQUESTS, RESPONSES = names_of(RequestCode), names_of(ResponseCode)
NEVER = "never"  # what has no class


class Sheet(Collector):
    """The answer to one scrape while it is filled in."""

    def __init__(self, node: Mapping[str, str]) -> None:
        self._node = node
        self._metrics: dict[str, Metric] = {}

    def add(self, name: str, value: float, /, **labels: str) -> None:
        """Add one series; the labels of the node are filled in where the family has them."""
        family = FAMILIES[name]
        metric = self._metrics.get(name)
        if metric is None:
            kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
            metric = self._metrics[name] = kind(name, family.meaning, labels=family.labels)
        given = {**self._node, **labels}
        metric.add_metric([given[label] for label in family.labels], value)  # type: ignore[attr-defined]

    def add_each(self, name: str, label: str, counts: Mapping[str, int]) -> None:
        """Add one series for each entry, the largest first, as many as the family may have."""
        for key, count in sorted(counts.items(), key=lambda item: -item[1])[: FAMILIES[name].most]:
            self.add(name, count, **{label: key})

    def add_histogram(self, name: str, buckets: list[tuple[str, float]], total: float) -> None:
        """Add a histogram of cumulative buckets."""
        assert FAMILIES[name].kind == HISTOGRAM
        metric = HistogramMetricFamily(name, FAMILIES[name].meaning)
        metric.add_metric([], buckets, total)
        self._metrics[name] = metric

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.values()
        yield from ProcessCollector(registry=CollectorRegistry()).collect()


class Gatherer:
    """Makes the text of one box; keeps nothing but the ages of messages that consumers are stuck at."""

    def __init__(self, watched: BoxView) -> None:
        self._watched, self._ages = watched, Ages(watched.store)
        self._notes = MachineNotes(watched.data)
        box = watched.config.box
        self._node = {"cluster": box.cluster, "node_type": "broker", "node_id": box.name}

    async def text(self) -> bytes:
        """Return the exposition of this moment; written in a thread, so the loop gives only what the reading takes."""
        sheet, began = Sheet(self._node), time.thread_time()
        for read in (_store, _network, _calls, _tls, _waiting, _health, _uplink, _replication):
            read(self._watched, sheet)
            await trio.lowlevel.checkpoint()
        if (uplink := self._watched.uplink) is not None:
            sheet.add("rocketbox_uplink_oldest_unshipped_seconds", await oldest_unshipped_s(self._watched, uplink))
        await self._machine(sheet)
        left_out = await read_topics(self._watched, self._ages, sheet.add)
        sheet.add_each("rocketbox_series_left_out", "of", left_out)
        sheet.add("rocketbox_gathering_seconds", time.thread_time() - began)
        return await trio.to_thread.run_sync(generate_latest, sheet)

    async def _machine(self, sheet: Sheet) -> None:
        seen = await self._notes.read()
        sheet.add_each("rocketbox_boots_total", "reason", dict.fromkeys(RESET_REASONS, 0) | dict(seen.boots))
        sheet.add_each("rocketbox_restarts_total", "reason", dict.fromkeys(EXIT_RESULTS, 0) | dict(seen.restarts))
        sheet.add_each("rocketbox_update_total", "result", dict.fromkeys(UPDATE_RESULTS, 0) | dict(seen.updates))
        if seen.wear is not None:
            sheet.add("rocketbox_flash_wear_ratio", seen.wear)


def _store(watched: BoxView, sheet: Sheet) -> None:
    seen, evidence = watched.store.statistics(), watched.store.evidence()
    counts, so_far, buckets = seen.sync_us, 0, list[tuple[str, float]]()
    for power, count in enumerate(counts):
        so_far += count
        if FIRST_BUCKET <= power < BUCKETS:
            buckets.append((f"{(1 << power) / 1e6:.6g}", so_far))
    sheet.add_histogram("rocketbox_sync_seconds", [*buckets, ("+Inf", so_far)], seen.sync_s)
    written = disk_written()
    pairs: dict[str, float] = {
        "stored_messages_total": seen.messages,
        "stored_bytes_total": seen.bytes,
        "messages_per_sync": seen.messages / seen.syncs if seen.syncs else 0.0,
        "disk_written_bytes_total": written,
        "written_per_ingested_ratio": written / seen.bytes if seen.bytes else 0.0,
        "log_first_offset_bytes": seen.first,
        "log_durable_offset_bytes": seen.synced,
        "appends_refused": int(seen.full is not None or evidence.failure is not None),
        "queues": seen.queues,
        "cold_reads_total": seen.cold_reads,
        "deleted_segments_total": seen.deleted_segments,
        "damaged_ranges": seen.damaged_ranges,
        "lost_messages": watched.store.losses.messages(),
        "scrubbed_bytes_total": seen.scrubbed_bytes,
        "disk_used_ratio": seen.disk_percent / 100,
    }
    for name, value in pairs.items():
        sheet.add(f"rocketbox_{name}", value)
    verdict = watched.store.verdict
    sheet.add("rocketbox_recovery_seconds", verdict.seconds, verdict=verdict.verdict)
    if seen.full_in_h is not None:
        sheet.add("rocketbox_disk_full_in_seconds", seen.full_in_h * 3600)
    place = {"storage_type": "local", "storage_medium": "disk"}
    sheet.add("rocketmq_storage_size_bytes", seen.end - seen.first, **place)
    sheet.add("rocketmq_storage_flush_behind_bytes", seen.end - seen.synced, **place)
    sheet.add("rocketmq_storage_dispatch_behind_bytes", max(0, seen.committed - seen.position), **place)


def disk_written() -> int:
    """Return the bytes this process caused to be written to disks. Source: proc_pid_io(5)."""
    try:
        with open("/proc/self/io") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
    except (OSError, StopIteration):
        return 0  # kernels without task accounting


def _network(watched: BoxView, sheet: Sheet) -> None:
    seen = watched.governor.statistics()
    sheet.add("rocketbox_connections", seen.connections)
    sheet.add("rocketbox_bytes_in_flight", seen.bytes_in_flight)
    sheet.add("rocketbox_readers_paused", int(seen.readers_paused))
    sheet.add("rocketbox_parked_pulls", watched.tables.arrivals.parked)
    for direction in ("in", "out"):
        sheet.add("rocketbox_network_bytes_total", seen.counted.get(f"bytes_{direction}", 0), direction=direction)
    refused = dict.fromkeys(REFUSALS, 0)
    refused |= {name.removeprefix(REFUSED): n for name, n in seen.counted.items() if name.startswith(REFUSED)}
    sheet.add_each("rocketbox_connections_refused_total", "reason", refused)
    others = ("frames", "bytes_in", "bytes_out", *(REFUSED + name for name in refused))
    events = {name: n for name, n in seen.counted.items() if name not in others}
    sheet.add_each("rocketbox_connection_events_total", "event", events)
    for port, statistics in watched.responders.items():
        asked = statistics()
        _requests(sheet, port, asked.requests.items())
        refusals = sorted(asked.refusals.items(), key=lambda item: -item[1])
        for (request, response), count in refusals[: families.MOST_CODES // len(watched.responders)]:
            names = {"request": REQUESTS.get(request, str(request)), "response": RESPONSES.get(response, str(response))}
            sheet.add("rocketbox_refusals_total", count, port=port, **names)
        denied = Counter(
            {access.name.lower(): 0 for access in AccessClass} | {NEVER: asked.unknown}
        )  # 0: seen from 0 on
        for code, count in asked.denied.items():
            denied[ACCESS[code].name.lower() if code in ACCESS else NEVER] += count
        for kind, count in denied.items():
            sheet.add("rocketbox_requests_denied_total", count, **{"port": port, "class": kind})
        sheet.add("rocketbox_unknown_requests_total", asked.unknown, port=port)
        sheet.add("rocketbox_request_faults_total", asked.faults, port=port)


def _calls(watched: BoxView, sheet: Sheet) -> None:
    """Add what RocketMQ 5 clients asked."""
    if watched.calls is None:
        return
    seen = watched.calls()
    for method, count in seen.requests.items():
        sheet.add("rocketbox_requests_total", count, port="grpc", request=method)
    for (method, code), count in sorted(seen.refusals.items(), key=lambda item: -item[1])[: families.MOST_CODES // 4]:
        sheet.add("rocketbox_refusals_total", count, port="grpc", request=method, response=code)
    sheet.add("rocketbox_unknown_requests_total", seen.unknown, port="grpc")
    sheet.add("rocketbox_request_faults_total", seen.faults, port="grpc")


def _tls(watched: BoxView, sheet: Sheet) -> None:
    seen = watched.door.statistics() if watched.door else None
    if seen is not None:
        sheet.add("rocketbox_tls_expiry_seconds", (seen.not_after_ms - watched.now_ms()) / 1000)
        sheet.add("rocketbox_tls_files_refused", int(bool(seen.failure)))


def _requests(sheet: Sheet, port: str, counts: Iterable[tuple[int, int]]) -> None:
    for code, count in counts:
        if code in REQUESTS:  # codes that somebody made up are counted as unknown, without a series each
            sheet.add("rocketbox_requests_total", count, port=port, request=REQUESTS[code])


def _waiting(watched: BoxView, sheet: Sheet) -> None:
    for level in watched.waiting.delays():
        sheet.add("rocketbox_delayed_messages", level.end - level.delivered, level=str(level.level))
    sheet.add("rocketbox_timed_messages", watched.waiting.timers())
    sheet.add("rocketbox_half_messages", watched.waiting.halves())
    pop = watched.waiting.pop()
    sheet.add("rocketbox_pop_in_flight_messages", pop.in_flight)
    sheet.add("rocketbox_pop_waiting_receivers", pop.waiting)
    sheet.add("rocketbox_pop_redelivered_total", pop.copied)
    sheet.add("rocketbox_pop_gone_total", pop.gone)
    sheet.add("rocketbox_pop_journal_bytes", pop.journal_bytes)
    sheet.add("rocketbox_pop_journal_syncs_total", pop.journal_syncs)


def _health(watched: BoxView, sheet: Sheet) -> None:
    if watched.board is None:
        return
    health = watched.board.snapshot()
    run = {"slot": health["slot"], "version": health["version"], "committed": str(health["committed"]).lower()}
    sheet.add("rocketbox_slot_info", 1, **run)
    for state in STATES:
        sheet.add("rocketbox_health_state", int(health["state"] == state), state=state)
    held = {reason["id"].partition(":")[0] for reason in health["reasons"]}
    for kind in CATALOGUE:
        sheet.add("rocketbox_condition", int(kind.id in held), id=kind.id, code=kind.code)
    sheet.add("rocketbox_conditions_muted", len(health["muted"]))
    codes = [reason["code"] for reason in health["reasons"]]
    sheet.add_each("rocketbox_health_reasons", "code", {code: codes.count(code) for code in codes})
    sheet.add("rocketbox_boot_number", health["boot"])
    sheet.add("rocketbox_boot_info", 1, reason=health["reset_reason"])
    sheet.add("rocketbox_clock_trusted", int(health["clock_trusted"]))
    for name, age in health["proof"].items():
        sheet.add("rocketbox_proof_age_seconds", age, evidence=name.removesuffix("_age_s"))
    if watched.board.feeding is not None:
        _feeding(sheet, watched.board.feeding())


def _feeding(sheet: Sheet, seen: FeedStatistics) -> None:
    sheet.add("rocketbox_proof_fed_total", seen.fed)
    sheet.add("rocketbox_proof_starved_total", seen.starved)
    sheet.add("rocketbox_loop_lateness_seconds", seen.late_s)


def _replication(watched: BoxView, sheet: Sheet) -> None:
    for name, value, labels in watched.replication.series() if watched.replication else ():
        sheet.add(f"rocketbox_replication_{name}", value, **labels)


def _uplink(watched: BoxView, sheet: Sheet) -> None:
    if watched.uplink is None:
        return
    from uplink_spark.wire.batch import GAP_CLASSES  # not loaded by a box without an uplink

    seen = watched.uplink.statistics()
    counts = seen.counts
    values: dict[str, float] = {
        "connected": int(seen.connected),
        "paused": int(seen.paused),
        "gateway_full": int(seen.gateway_full),
        "unshipped_bytes": seen.unshipped_bytes,
        "backlog_bytes": seen.backlog_bytes,
        "durable_bytes": watched.store.committed,
        "receipted_bytes": seen.receipted_bytes,
        "raw_bytes_total": counts.raw_bytes,
        "wire_bytes_total": counts.wire_bytes,
        "repeat_bytes_total": counts.repeat_bytes,
        "month_wire_bytes": seen.month_bytes,
        "rate_bytes": seen.cap_bytes,
        "connects_total": counts.connects,
        "gaps_undelivered": seen.gaps_undelivered,
        "eta_seconds": seen.eta_s,
    }
    if seen.certificate_left_s is not None:
        values["certificate_expiry_seconds"] = seen.certificate_left_s
    values |= {"quota_seconds_left": seen.quota_left_s} if seen.quota_left_s >= 0 else {}
    for name, value in values.items():
        sheet.add(f"rocketbox_uplink_{name}", value)
    tables = {
        "connection_errors_total": ("cause", counts.errors),
        "pieces_total": ("kind", counts.pieces),
        "refused_total": ("code", counts.refused),
        "gaps_declared_total": ("class", dict.fromkeys(GAP_CLASSES, 0) | counts.gaps),
        "gap_bytes_total": ("class", dict.fromkeys(GAP_CLASSES, 0) | counts.gap_bytes),
        "alarm": ("name", dict.fromkeys(seen.alarms, 1)),
    }
    for name, (label, table) in tables.items():
        sheet.add_each(f"rocketbox_uplink_{name}", label, table)
