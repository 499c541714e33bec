"""What people are told of Apache's slaves: of a master's, and of those that a member of a group serves."""

from collections.abc import Iterator, Mapping

from appliance.replication.slaves import SlavesSeen


def slaves_told(seen: SlavesSeen, end: int) -> list[dict[str, object]]:
    """Return each slave for the health object; -1: it has not reported. What it reports need not be on its disk."""
    return [
        {
            "address": each.address,
            "reported": each.reported,
            "behind_bytes": end - max(0, each.reported),
            "connected_s": round(each.since_s),
        }
        for each in seen.slaves
    ]


def slaves_series(seen: SlavesSeen, end: int) -> Iterator[tuple[str, float, Mapping[str, str]]]:
    """Return name, value and labels of each metric; of several slaves at one address the one furthest behind."""
    yield "slaves", len(seen.slaves), {}
    if seen.slaves:
        yield "lag_bytes", end - min(max(0, each.reported) for each in seen.slaves), {}
    reported: dict[str, int] = {}
    for each in seen.slaves:
        host = each.address.rpartition(":")[0]
        reported[host] = min(max(0, each.reported), reported.get(host, 1 << 63))
    for host, log_offset in reported.items():
        yield "slave_reported_bytes", log_offset, {"slave": host}
        yield "slave_lag_bytes", end - log_offset, {"slave": host}
    yield "connections_total", seen.connections, {}
    yield "sent_bytes_total", seen.sent_bytes, {}
    for reason, count in seen.refused.items():
        yield "refused_total", count, {"reason": reason}
