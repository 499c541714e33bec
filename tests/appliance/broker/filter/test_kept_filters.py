"""Large filters of waiting pulls: kept once, bounded together, given up with the last pull."""

import pytest
import trio

from appliance.broker.filter.kept_filters import SMALL, Filtered, KeptFilters, filtered
from appliance.broker.filter.subscriptions import parse_subscription, record_predicate, tags_predicate
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode


def large(name: str = "t", count: int = 50) -> Filtered:
    subscription = parse_subscription("T", "||".join(f"{name}{number}" for number in range(count)))
    return filtered(subscription, (tags_predicate(subscription), None), inline=True)


async def nothing() -> int:
    await trio.lowlevel.checkpoint()
    return 7


async def test_equal_filters_are_one_until_the_last_pull_ends() -> None:
    kept, first, second = KeptFilters(), large(), large()
    assert not first.is_small
    assert kept.enter(first) is first
    assert kept.enter(second) is first
    assert kept.bytes == first.cost
    assert await kept.during(nothing(), first.key) == 7
    assert (len(kept), kept.bytes) == (1, first.cost)
    await kept.during(nothing(), first.key)
    assert (len(kept), kept.bytes) == (0, 0)


def test_a_filter_for_which_there_is_no_room_is_refused_so_that_clients_ask_again() -> None:
    kept = KeptFilters(large().cost + 1)
    kept.enter(large())
    kept.check(large())
    kept.check(large("small", 3))
    with pytest.raises(Refused, match="the filters of waiting pulls take") as refused:
        kept.check(large("other"))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY


def test_what_costs_memory_counts_and_nothing_else() -> None:
    text = " OR ".join(f"a = '{number}'" for number in range(50))
    sql = parse_subscription("T", text, "SQL92")
    tags = parse_subscription("T", "||".join(map(str, range(50))))
    everything = parse_subscription("T", "*")
    assert filtered(sql, (None, record_predicate(sql)), inline=False).cost > SMALL
    assert filtered(tags, (tags_predicate(tags), None), inline=False).cost == 0  # the group's table has them
    assert filtered(everything, (None, None), inline=True).cost == 0
