"""What `uplink status`, `gaps`, `receipts` and `test` say on a box, for people and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import trio

from uplink_spark.box.figures import UplinkStatus
from uplink_spark.box.link.connect import ConnectFailed, GatewayRefused, greet, open_stream
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.state import ShipperState
from uplink_spark.config import UplinkConfig, split_address
from uplink_spark.errors import ProtocolError, UplinkError
from uplink_spark.wire.batch import gap_range
from uplink_spark.wire.frames import Hello

COULD_NOT_ASK, UNHEALTHY = 1, 10
REACHED_S = 1.0
NO_RECEIPT_S = 300


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def healthy(status: UplinkStatus) -> bool:
    """Receipts advance while bytes wait, and nothing raised an alarm."""
    stuck = status.unshipped_bytes > 0 and (status.last_receipt_s is None or status.last_receipt_s > NO_RECEIPT_S)
    return not status.alarms and not (stuck and not status.paused)


def status_json(status: UplinkStatus) -> dict[str, Any]:
    counts = {item.name: getattr(status.counts, item.name) for item in fields(status.counts)}
    plain = {item.name: getattr(status, item.name) for item in fields(status)}
    return plain | {"epoch": f"{status.epoch:x}", "healthy": healthy(status), "counts": counts}


def status_text(status: UplinkStatus) -> str:
    """Return the lines of `uplink status`."""
    rows = [("uplink", _uplink_line(status)), ("shipped", _shipped_line(status))]
    live = max(0, status.unshipped_bytes - status.backlog_bytes)
    waiting = f"{size(live)} live + {size(status.backlog_bytes)} backlog"
    if status.unshipped_bytes:
        waiting += f", oldest {span(status.oldest_unshipped_s)}"
    rows.append(("unshipped", waiting))
    cap = f" of {status.cap_bytes * 8 // 1000}" if status.cap_bytes else ""
    inflow = f"inflow {status.inflow * 8 / 1000:.0f} kbit/s raw"
    rows.append(("rate", f"{status.wire_rate * 8 / 1000:.0f} kbit/s{cap}; {inflow}"))
    if status.backlog_bytes:
        rows.append(("backlog", _eta_line(status)))
    if 0 <= status.quota_left_s < REACHED_S:
        rows.append(("disk", "unshipped log is at its limit: what uplink.when_full says happens"))
    elif status.quota_left_s > 0:
        rows.append(("disk", f"holds {span(status.quota_left_s)} more of unshipped log at this inflow"))
    rows.append(("gaps", f"{status.gaps}, {status.gaps_undelivered} not yet receipted"))
    rows += [("alarm", f"{name}: {text}") for name, text in sorted(status.alarms.items())]
    return "\n".join(f"{name:<11} {text}" for name, text in rows)


def _uplink_line(status: UplinkStatus) -> str:
    who = f"{status.box}, epoch {status.epoch:x}"
    if status.paused:
        return f"paused, {who}; `rocketbox uplink resume` continues"
    if status.connected:
        full = "; gateway full" if status.gateway_full else ""
        return f"connected to {status.address} for {span(status.connected_s)}, {who}{full}"
    return f"not connected to {status.address}, {who}: {status.last_error or 'connecting'}"


def _shipped_line(status: UplinkStatus) -> str:
    last = "no receipt yet" if status.last_receipt_s is None else f"last receipt {span(status.last_receipt_s)} ago"
    return f"{size(status.receipted_bytes)}, {last}"


def _eta_line(status: UplinkStatus) -> str:
    done = 100 * status.receipted_bytes // max(1, status.receipted_bytes + status.unshipped_bytes)
    if status.eta_s >= 0:
        return f"{done} %, done in {span(status.eta_s)}"
    behind = (status.inflow - status.raw_rate) * 3600 / 1e6
    return f"{done} %, never at this rate, falling behind by {behind:.1f} MB/h"


def gap_rows(gaps: list[Gap], delivered: set[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return gaps as `uplink gaps --json` prints them."""
    found = [(gap, *gap_range(gap.facts, gap.epoch, gap.start, gap.end)) for gap in gaps]
    return [
        {
            "epoch": f"{epoch:x}",
            "from": start,
            "to": end,
            "class": gap.facts["class"],
            "reason": gap.facts["reason"],
            "records": gap.facts.get("records"),
            "declared": datetime.fromtimestamp(gap.facts.get("declared", 0) / 1000, UTC).isoformat(),
            "receipted": gap.gap_id in delivered,
        }
        for gap, epoch, start, end in found
    ]


@dataclass(frozen=True, slots=True)
class TestStep:
    """One step of `uplink test`."""

    step: str
    ok: bool
    text: str


ADVICE = {
    "dns": "check the name in uplink.gateway and the box's DNS servers",
    "tcp": "is the gateway running, and does a firewall let this port through?",
    "tls": "compare ca.crt on both sides and the gateway's name with its certificate",
    "timeout": "the network drops packets: try from another network",
    "refused": "the gateway does not accept this box's certificate: see its log",
    "silent": "another program listens on this port",
    "config": "the box runs without its uplink and tries again within a minute",
    "network": "the gateway, or something between, cut the connection: see its log",
}


async def try_uplink(state: ShipperState, config: UplinkConfig, hello: Callable[[], Hello]) -> list[TestStep]:
    """Try name, TCP, TLS and HELLO one after the other; cause and next step per line.

    The gateway lets a box in once: it ends the shipper's connection, which starts again right after.
    """
    try:
        host, port = split_address(config.gateway)
        with trio.move_on_after(20):
            await trio.socket.getaddrinfo(host, port)
        async with open_stream(config, config.gateway, clock_ok=state.clock_ok()) as (stream, tcp):
            peer = ":".join(map(str, tcp.socket.getpeername()[:2]))
            lines = [TestStep("connect", True, f"{config.gateway} is {peer}")]
            lines.append(TestStep("tls", True, "TLS 1.3, both sides known" if config.certs else "none: loopback only"))
            try:
                connection = await greet(stream, hello(), None, certs=config.certs)
            finally:
                state.wakes.connect.set()
            held = sum(end - start for _, start, end in connection.welcome.have)
            return [*lines, TestStep("hello", True, f"the centre holds {size(held)} of this box")]
    except GatewayRefused as error:
        return [TestStep("hello", False, str(error))]
    except ConnectFailed as error:
        return [TestStep(error.cause, False, f"{error}; {ADVICE.get(error.cause, '')}")]
    except (OSError, UnicodeError) as error:
        return [TestStep("dns", False, f"{error}; {ADVICE['dns']}")]
    except (ProtocolError, UplinkError) as error:
        return [TestStep("hello", False, str(error))]
