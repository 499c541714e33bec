"""Who is let in: limits per process, per address and per second, with loopback set apart."""

from netstack.serving.limits import (
    ConnectionCounts,
    Limits,
    LogLimiter,
    decide,
    decide_by_descriptor,
)


def admitted(counts: ConnectionCounts, address: str, now: float, limits: Limits, times: int) -> int:
    return sum(decide(address, counts, now, limits) is None for _ in range(times))


def test_an_address_has_so_many_connections_and_no_more() -> None:
    limits, counts = Limits(connections_per_address=3), ConnectionCounts()
    assert admitted(counts, "10.0.0.1", 0, limits, 5) == 3
    assert decide("10.0.0.1", counts, 0, limits) == "limits.connections_per_address: 3"
    assert decide("10.0.0.2", counts, 0, limits) is None
    counts.remove("10.0.0.1")
    assert decide("10.0.0.1", counts, 0, limits) is None


def test_the_last_places_are_kept_for_loopback() -> None:
    limits, counts = Limits(connections=10, reserved_for_loopback=4), ConnectionCounts()
    assert admitted(counts, "10.0.0.1", 0, limits, 10) == 6
    assert decide("10.0.0.2", counts, 0, limits) == "limits.connections: 6 connections, 6 allowed"
    assert admitted(counts, "127.0.0.1", 0, limits, 10) == 4


def test_connections_leave_the_last_descriptors_to_the_store_and_fewer_to_this_machine_itself() -> None:
    limits = Limits(descriptors=1000)
    assert [decide_by_descriptor(number, False, limits) is None for number in (899, 900)] == [True, False]
    assert [decide_by_descriptor(number, True, limits) is None for number in (949, 950)] == [True, False]
    assert decide_by_descriptor(900, False, limits) == "process: 900 of 1000 open files are in use"
    assert decide_by_descriptor(100_000, False, Limits()) is None


def test_a_burst_is_allowed_and_then_a_rate() -> None:
    limits, counts = Limits(new_per_s=10, new_burst=5, connections_per_address=1000), ConnectionCounts()
    assert admitted(counts, "10.0.0.1", 100.0, limits, 20) == 5
    assert admitted(counts, "10.0.0.1", 100.5, limits, 20) == 5
    assert decide("10.0.0.1", counts, 100.5, limits) == "limits.connects_per_s: 10"
    assert admitted(counts, "10.0.0.1", 110.0, limits, 20) == 5


def test_loopback_is_exempt_from_limits_per_address() -> None:
    limits, counts = Limits(connections_per_address=1, new_burst=1), ConnectionCounts()
    assert admitted(counts, "127.0.0.1", 0, limits, 500) == 500
    assert admitted(counts, "::1", 0, limits, 100) == 100


def test_what_is_kept_per_address_is_bounded() -> None:
    counts, limits = ConnectionCounts(), Limits(connections=10**9)
    for number in range(10_000):
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        assert decide(address, counts, 0, limits) is None
        counts.remove(address)
    assert (counts.total, len(counts.by_share), len(counts.allowance)) == (0, 0, 4096)


def test_a_line_per_peer_and_event_in_ten_seconds_tells_what_was_left_out() -> None:
    lines = LogLimiter(every_s=10, keep=2)
    assert [lines.allows("a", "x", now) for now in (0, 1, 2, 10, 11, 20.5)] == [0, None, None, 2, None, 1]
    assert lines.allows("a", "y", 21) == 0
    assert lines.allows("b", "x", 21) == 0
    assert lines.allows("a", "x", 21) == 0  # forgotten, since only two are kept
