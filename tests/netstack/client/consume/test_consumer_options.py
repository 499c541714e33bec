"""Settings of a consumer: the ranges of the Java client, to the number."""

import pytest

from netstack.client.consume.consumer_options import ConsumerOptions, StartFrom
from netstack.client.errors import UsageError
from netstack.wire.bodies import ConsumeFromWhere

RANGES = {
    "max_span": (1, 65535),
    "queue_messages": (1, 65535),
    "queue_mib": (1, 1024),
    "topic_messages": (-1, 6_553_500),
    "topic_mib": (-1, 102_400),
    "pull_batch": (1, 1024),
}


@pytest.mark.parametrize("name", RANGES)
def test_both_ends_of_a_range_are_allowed_and_what_lies_beyond_is_refused_with_it(name: str) -> None:
    lowest, highest = RANGES[name]
    for value in (lowest, highest):
        assert getattr(ConsumerOptions(**{name: value}), name) == value  # type: ignore[arg-type]
    for value in (lowest - 1, highest + 1):
        with pytest.raises(UsageError, match=rf"{name} is {value}, allowed: {lowest}\.\.{highest}"):
            ConsumerOptions(**{name: value})  # type: ignore[arg-type]


def test_a_pull_may_not_end_before_its_hold() -> None:
    assert ConsumerOptions(hold_s=5.0, pull_timeout_s=5.0).hold_s == 5.0
    with pytest.raises(UsageError, match=r"pull_timeout_s 4\.9 is shorter than hold_s 5"):
        ConsumerOptions(hold_s=5.0, pull_timeout_s=4.9)


@pytest.mark.parametrize(("asked", "limit"), [(-1, 16), (-5, 16), (0, 0), (3, 3)])
def test_deliveries_after_the_first_have_a_limit(asked: int, limit: int) -> None:
    assert ConsumerOptions(max_reconsume=asked).reconsume_limit == limit


def test_each_start_is_one_that_the_protocol_knows() -> None:
    assert [start.value for start in StartFrom] == [
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    ]
