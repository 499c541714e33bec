"""Counters of methods."""

from netstack.grpc.call_counts import CallCounts


def test_methods_are_counted_by_their_names() -> None:
    counts = CallCounts()
    counts.requests[b"/package.Service/Send"] += 2
    counts.refusals["Send", "NOT_FOUND"] += 1
    counts.unknown += 1
    found = counts.statistics()
    assert (found.requests, found.refusals) == ({"Send": 2}, {("Send", "NOT_FOUND"): 1})
    assert (found.faults, found.unknown) == (0, 1)
