"""Prometheus text of the gateway: plain lines from the hub's counters, one HTTP answer a connection."""

from __future__ import annotations

from collections import Counter
from functools import partial

import trio

from uplink_spark.centre.coverage import BoxCover
from uplink_spark.centre.hub import BoxSeen, Hub
from uplink_spark.centre.prometheus import counter_lines, histogram_lines, sample
from uplink_spark.wire.batch import GAP_CLASSES

PREFIX = "rocketbox_gateway_"
REQUEST_S, REQUEST_BYTES = 5, 8192


def gateway_text(hub: Hub, retired: frozenset[str] = frozenset()) -> str:
    """Return the metrics of a gateway; at most max_boxes series a name, none of retired boxes."""
    counts = hub.counts
    lines = [
        sample(f"{PREFIX}boxes_connected", len(hub.sessions)),
        sample(f"{PREFIX}shards_held", len(hub.landers)),
        sample(f"{PREFIX}raw_bytes_total", counts.raw_bytes),
        sample(f"{PREFIX}wire_bytes_total", counts.wire_bytes),
        sample(f"{PREFIX}dup_bytes_total", sum(lander.counts.dup_bytes for lander in hub.landers.values())),
        sample(f"{PREFIX}commits_total", sum(lander.counts.commits for lander in hub.landers.values())),
        sample(f"{PREFIX}landing_failures_total", sum(lander.counts.failures for lander in hub.landers.values())),
        sample(f"{PREFIX}twins_total", counts.twins),
        sample(f"{PREFIX}status_left_out_total", counts.status_left_out),
        sample(f"{PREFIX}divergence_total", counts.divergences),
        sample(f"{PREFIX}landing_used_ratio", round(hub.disk_used, 4)),
    ]
    doubts = {"other": 0, "older": 0} | counts.zone_doubts  # 0: a rule sees the first
    lines += counter_lines(f"{PREFIX}zone_doubts_total", "zone", doubts)
    lines += counter_lines(f"{PREFIX}handshakes_total", "result", counts.handshakes)
    lines += _piece_lines(hub)
    gaps = sum((lander.counts.gaps for lander in hub.landers.values()), Counter[str]())
    lines += counter_lines(
        f"{PREFIX}gaps_total", "class", dict.fromkeys(GAP_CLASSES, 0) | gaps
    )  # 0: a rule sees the first
    lines += counter_lines(f"{PREFIX}refused_total", "code", counts.refused)
    lines += histogram_lines(f"{PREFIX}commit_seconds", [lander.counts.commit_s for lander in hub.landers.values()])
    lines += histogram_lines(f"{PREFIX}fsync_seconds", [lander.writer.syncs for lander in hub.landers.values()])
    if hub.disk_free is not None:
        lines.append(sample(f"{PREFIX}landing_free_bytes", hub.disk_free))
    if hub.certificate_ends_s is not None:
        lines.append(sample(f"{PREFIX}certificate_expiry_seconds", round(hub.certificate_ends_s - hub.now_ms() / 1000)))
    lines += _box_lines(hub, retired)
    return "\n".join(lines) + "\n"


def _piece_lines(hub: Hub) -> list[str]:
    """Pieces by kind and result; `refused` counts those refused at landing or before."""
    name = f"{PREFIX}pieces_total"
    pieces = sum((lander.counts.pieces for lander in hub.landers.values()), Counter[tuple[str, str]]())
    pieces.update({(kind, "refused"): count for kind, count in hub.counts.refused_kinds.items()})
    rows = [sample(name, count, {"kind": kind, "result": result}) for (kind, result), count in sorted(pieces.items())]
    return [f"# TYPE {name} counter", *rows]


def _box_lines(hub: Hub, retired: frozenset[str]) -> list[str]:
    lines: list[str] = []
    covers = {name: cover for lander in hub.landers.values() for name, cover in lander.cover.boxes.items()}
    for box in sorted(covers.keys() - retired)[: hub.config.max_boxes]:
        lines += _lines_of(box, covers[box], hub.seen.get(box), hub.now_ms())
    return lines


def _lines_of(box: str, cover: BoxCover, seen: BoxSeen | None, now_ms: int) -> list[str]:
    label = {"box": box}
    ends = [max(c.data.end, c.gaps.end) for c in cover.epochs.values()]
    lines = [
        sample(f"{PREFIX}box_landed_end_bytes", ends[-1] if ends else 0, label),
        sample(f"{PREFIX}box_last_landed_seconds", round((now_ms - cover.landed_ms) / 1000, 1), label),
        sample(f"{PREFIX}box_gaps", cover.gap_entries, label),
    ]
    if seen is not None and seen.seen_at_ms:
        lines.append(sample(f"{PREFIX}box_last_seen_seconds", round((now_ms - seen.seen_at_ms) / 1000, 1), label))
        lines.append(sample(f"{PREFIX}box_clock_skew_seconds", round(seen.skew_ms / 1000, 1), label))
        lines.append(sample(f"{PREFIX}box_pending_bytes", max(0, seen.durable - (ends[-1] if ends else 0)), label))
    return lines


async def _retired(hub: Hub) -> frozenset[str]:
    try:
        return await trio.to_thread.run_sync(hub.records.retired)
    except OSError:  # the zone is gone for a while; the other figures are there
        return frozenset()


async def _head(stream: trio.SocketStream) -> bytes:
    """Return a request's lines once all are there, at most REQUEST_BYTES; fewer when the other end stops."""
    head = bytearray()
    while b"\r\n\r\n" not in head and len(head) < REQUEST_BYTES:
        if not (more := await stream.receive_some(REQUEST_BYTES - len(head))):
            break
        head += more
    return bytes(head)


async def _answer(hub: Hub, stream: trio.SocketStream) -> None:
    """Answer any GET with the metrics; whoever sends something else or nothing is closed."""
    async with stream:
        with trio.move_on_after(REQUEST_S):
            try:
                if not (await _head(stream)).startswith(b"GET "):
                    return
                body = gateway_text(hub, await _retired(hub)).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n"
                await stream.send_all(head.encode() + b"Connection: close\r\n\r\n" + body)
            except trio.BrokenResourceError:
                return


async def serve_metrics(hub: Hub, listeners: list[trio.SocketListener]) -> None:
    """Answer scrapes until cancelled."""
    await trio.serve_listeners(partial(_answer, hub), listeners)
