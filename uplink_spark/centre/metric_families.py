"""The figures of a gateway as families that the Prometheus library writes out. Loaded at the first scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from uplink_spark.centre.histogram import BUCKETS_S, Histogram
from uplink_spark.centre.hub import BoxSeen, Hub
from uplink_spark.centre.lander import LandingCounts
from uplink_spark.centre.zone_files.coverage import BoxCover
from uplink_spark.wire.batch import GAP_CLASSES

PREFIX = "rocketbox_gateway_"
BOX_MEANINGS = {
    "box_landed_end_bytes": "Log offset up to which the newest epoch of a box has landed",
    "box_last_landed_seconds": "Age of a box's last commit",
    "box_gaps": "Losses that a box has declared",
    "box_last_seen_seconds": "Age of a box's last frame",
    "box_clock_skew_seconds": "How far a box's clock is ahead of the gateway's",
    "box_pending_bytes": "Bytes that a box has and the landing zone does not",
}


class _Sheet(Collector):
    """Families that were read before."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def exposition(families: Sequence[Metric]) -> bytes:
    """Return the text of families in Prometheus' format."""
    return generate_latest(_Sheet(families))


def read_families(hub: Hub, retired: frozenset[str] = frozenset()) -> list[Metric]:
    """Return the metrics of a gateway; at most max_boxes series a name, none of retired boxes."""
    return [*_totals(hub), *_labelled(hub), *_histograms(hub), *_gauges(hub), *_boxes(hub, retired)]


def _of_shards(hub: Hub) -> list[LandingCounts]:
    """Return the counts of the shards that are landed here, and of those that were."""
    here = {shard: lander.counts for shard, lander in hub.landers.items()}
    return list((hub.counts.shards | here).values())


def _totals(hub: Hub) -> Iterator[Metric]:
    counts, landers = hub.counts, _of_shards(hub)
    for name, meaning, value in (
        ("raw_bytes", "Raw bytes of pieces received", counts.raw_bytes),
        ("wire_bytes", "Bytes of pieces received, compressed", counts.wire_bytes),
        ("dup_bytes", "Raw bytes that had landed before", sum(each.dup_bytes for each in landers)),
        ("commits", "Commits to the landing zone", sum(each.commits for each in landers)),
        ("landing_failures", "Commits that failed", sum(each.failures for each in landers)),
        ("twins", "Boxes that came under a name that another used", counts.twins),
        ("status_left_out", "Status reports above the rate that is stored", counts.status_left_out),
        ("divergence", "Boxes whose history left the one that landed", counts.divergences),
    ):
        yield CounterMetricFamily(f"{PREFIX}{name}_total", meaning, value=value)


def _labelled(hub: Hub) -> Iterator[Metric]:
    doubts = {"other": 0, "older": 0} | hub.counts.zone_doubts  # 0: a rule sees the first
    gaps = sum((each.gaps for each in _of_shards(hub)), Counter[str]())
    yield _counter("zone_doubts", "Boxes that know another zone or more of this one", "zone", doubts)
    yield _counter("handshakes", "Connections by how they began", "result", hub.counts.handshakes)
    yield _counter("gaps", "Declared losses", "class", dict.fromkeys(GAP_CLASSES, 0) | gaps)
    yield _counter("refused", "Frames and pieces that were refused", "code", hub.counts.refused)
    pieces = sum((each.pieces for each in _of_shards(hub)), Counter[tuple[str, str]]())
    pieces.update({(kind, "refused"): count for kind, count in hub.counts.refused_kinds.items()})
    family = CounterMetricFamily(
        f"{PREFIX}pieces_total", "Pieces; refused ones at landing or before", labels=["kind", "result"]
    )
    for labels, count in sorted(pieces.items()):
        family.add_metric(labels, count)
    yield family


def _counter(name: str, meaning: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}{name}_total", meaning, labels=[label])
    for key, count in sorted(counts.items()):
        family.add_metric([key], count)
    return family


def _histograms(hub: Hub) -> Iterator[Metric]:
    shards = _of_shards(hub)
    yield histogram(f"{PREFIX}commit_seconds", "Time of a commit", (each.commit_s for each in shards))
    yield histogram(f"{PREFIX}fsync_seconds", "Time of a sync", (each.syncs for each in shards))


def histogram(name: str, meaning: str, parts: Iterable[Histogram]) -> Metric:
    """Return several histograms added up."""
    whole = Histogram()
    for part in parts:
        whole += part
    edges = [f"{edge:g}" for edge in BUCKETS_S]
    buckets = [*zip(edges, accumulate(whole.counts), strict=True), ("+Inf", whole.number)]
    return HistogramMetricFamily(name, meaning, buckets=buckets, sum_value=whole.total_s)


def _gauges(hub: Hub) -> Iterator[Metric]:
    yield _gauge("boxes_connected", "Boxes that are connected", len(hub.sessions))
    yield _gauge("shards_held", "Shards of the zone that this gateway writes", len(hub.landers))
    yield _gauge("landing_used_ratio", "Used share of the landing zone's file system", round(hub.disk_used, 4))
    if hub.disk_free is not None:
        yield _gauge("landing_free_bytes", "Free bytes of the landing zone's file system", hub.disk_free)
    if hub.certificate_ends_s is not None:
        left_s = round(hub.certificate_ends_s - hub.now_ms() / 1000)
        yield _gauge("certificate_expiry_seconds", "Remaining time of the gateway's certificate", left_s)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}{name}", meaning, value=value)


def _boxes(hub: Hub, retired: frozenset[str]) -> Iterable[Metric]:
    families = {
        name: GaugeMetricFamily(f"{PREFIX}{name}", meaning, labels=["box"]) for name, meaning in BOX_MEANINGS.items()
    }
    covers = {name: cover for lander in hub.landers.values() for name, cover in lander.cover.boxes.items()}
    for box in sorted(covers.keys() - retired)[: hub.config.max_boxes]:
        for name, value in _figures(covers[box], hub.seen.get(box), hub.now_ms()).items():
            families[name].add_metric([box], value)
    return [family for family in families.values() if family.samples]


def _figures(cover: BoxCover, seen: BoxSeen | None, now_ms: int) -> dict[str, float]:
    ends = [max(c.data.end, c.gaps.end) for c in cover.epochs.values()]
    end = ends[-1] if ends else 0
    figures: dict[str, float] = {
        "box_landed_end_bytes": end,
        "box_last_landed_seconds": round((now_ms - cover.landed_ms) / 1000, 1),
        "box_gaps": cover.gap_entries,
    }
    if seen is not None and seen.seen_at_ms:
        figures["box_last_seen_seconds"] = round((now_ms - seen.seen_at_ms) / 1000, 1)
        figures["box_clock_skew_seconds"] = round(seen.skew_ms / 1000, 1)
        figures["box_pending_bytes"] = max(0, seen.durable - end)
    return figures
