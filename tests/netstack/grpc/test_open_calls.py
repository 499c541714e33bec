"""The bounds on the calls of all connections together: true totals, and the first calls of each."""

from netstack.grpc.open_calls import FIRST, FIRST_BYTES, MOST, MOST_BYTES, SHARED, SHARED_BYTES, OpenCalls, OwnCalls

HEADERS = 64 << 10  # the most that a call may have: 496 fields without anything in 16 KiB as HTTP/2 counts


def test_a_connection_with_few_calls_opens_more_when_others_have_all_there_are() -> None:
    calls = OpenCalls(shared=(100, 1000))
    greedy, other = OwnCalls(calls), OwnCalls(calls)
    assert [greedy.open(1) for _ in range(101)] == [True] * 100 + [False]
    assert [other.open(1) for _ in range(FIRST + 1)] == [True] * FIRST + [False]
    greedy.closed(1)
    assert not greedy.open(1), "others have it"
    for _ in range(FIRST):
        other.closed(1)
    assert greedy.open(1)
    assert (calls.count, greedy.count, other.count) == (100, 100, 0)


def test_the_bytes_of_headers_are_bounded_too() -> None:
    calls = OpenCalls(shared=(100, 1000))
    greedy, other = OwnCalls(calls), OwnCalls(calls)
    assert greedy.open(FIRST_BYTES)
    assert [greedy.open(1), other.open(FIRST_BYTES), other.open(1)] == [False, True, False]
    greedy.closed(FIRST_BYTES)
    other.closed(FIRST_BYTES)
    assert (calls.count, calls.header_bytes) == (0, 0)


def test_no_number_of_connections_gets_beyond_the_totals() -> None:
    for size in (HEADERS, 500, 1):
        calls = OpenCalls()
        for one in (OwnCalls(calls) for _ in range(MOST)):
            while one.count < 64 and one.open(size):
                pass
        assert calls.count <= MOST
        assert calls.header_bytes <= MOST_BYTES
        assert calls.count >= SHARED or calls.header_bytes > SHARED_BYTES - HEADERS
