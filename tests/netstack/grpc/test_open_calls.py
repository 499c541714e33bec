"""The bound on the calls of all connections together."""

from netstack.grpc.open_calls import FREE, OpenCalls


def test_a_connection_with_few_calls_opens_more_when_others_have_all_there_are() -> None:
    calls = OpenCalls(most=100, most_bytes=1000)
    for number in range(100):
        assert calls.may_open(number)
        calls.opened(1)
    assert (calls.may_open(FREE), calls.may_open(FREE - 1)) == (False, True)
    calls.closed(1)
    assert calls.may_open(FREE)


def test_the_bytes_of_headers_are_bounded_too() -> None:
    calls = OpenCalls(most=100, most_bytes=1000)
    calls.opened(1000)
    assert (calls.may_open(FREE), calls.may_open(0)) == (False, True)
    calls.closed(1000)
    assert (calls.count, calls.header_bytes) == (0, 0)
