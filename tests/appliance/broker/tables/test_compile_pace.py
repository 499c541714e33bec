"""How often an address has large expressions compiled, and that requests which bring one, or go by one, are counted."""

from pathlib import Path

import pytest

from appliance.broker.filter import sql92
from appliance.broker.filter.sql92 import MOST_LARGE, ExpressionError, compile_expression, is_at_hand
from appliance.broker.filter.subscriptions import SQL92, TAG
from appliance.broker.tables import compile_pace
from appliance.broker.tables.compile_pace import BURST, PER_S, CompilePace
from netstack.errors import Refused
from netstack.wire import fastjson
from netstack.wire.command import request
from tests.appliance.box import connected, pull, running_box, send
from tests.appliance.broker.pop_requests.requests import pop


def large(number: int, characters: int = 2000) -> str:
    return f"n{number} = 1 OR ".ljust(characters - 5) + "m = 1"


def test_an_address_has_so_many_characters_compiled_at_once_and_more_with_time() -> None:
    now_s, each = 0.0, BURST // 16
    pace = CompilePace(lambda: now_s)
    for number in range(16):
        pace.check(large(number, each), SQL92, "10.0.0.1")
    with pytest.raises(Refused, match="too many large SQL92 expressions") as refused:
        pace.check(large(99, each), SQL92, "10.0.0.1")
    assert refused.value.code == 2
    for text, kind, address in (
        (large(99, each), SQL92, "10.0.0.2"),
        (large(99, each), SQL92, "127.0.0.1"),
        ("n = 1", SQL92, "10.0.0.1"),
        (large(99, each), TAG, "10.0.0.1"),
        (large(99, each), None, "10.0.0.1"),
    ):
        pace.check(text, kind, address)
    now_s = each / PER_S
    pace.check(large(99, each), SQL92, "10.0.0.1")
    with pytest.raises(Refused):
        pace.check(large(99, each), SQL92, "10.0.0.1")
    compile_expression(large(99, each))
    pace.check(large(99, each), SQL92, "10.0.0.1")


def test_the_large_ones_that_were_used_last_are_at_hand() -> None:
    each = MOST_LARGE // 8
    for number in range(8):
        compile_expression(large(number, each))
    compile_expression(large(0, each))
    compile_expression(large(8, each))
    assert [is_at_hand(large(number, each)) for number in (0, 1, 2, 8)] == [True, False, True, True]
    assert is_at_hand("m = 1")


def test_a_plant_of_many_groups_with_filters_of_some_thousand_characters_is_served() -> None:
    pace = CompilePace(lambda: 0.0)
    for _ in range(10):
        for number in range(60):
            pace.check(large(number), SQL92, "10.0.0.1")
            compile_expression(large(number))


def test_what_is_too_long_for_any_is_told_so_and_not_kept() -> None:
    text = large(0, BURST + 1)
    CompilePace(lambda: 0.0).check(text, SQL92, "10.0.0.1")
    with pytest.raises(ExpressionError, match="allowed 32768"):
        compile_expression(text)
    assert text not in sql92._LARGE


@pytest.mark.slow
async def test_requests_that_bring_a_large_expression_or_go_by_one_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_pace, "counted_for", lambda address: address)
    monkeypatch.setattr(compile_pace, "BURST", 7000)
    monkeypatch.setattr(compile_pace, "PER_S", 0)

    def subscribed(group: str, text: str) -> bytes:
        row = {"topic": "T", "subString": text, "expressionType": SQL92, "subVersion": 1}
        groups = [{"groupName": group, "subscriptionDataSet": [row]}]
        return fastjson.dumps({"clientID": "c@1", "consumerDataSet": groups})

    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T"))
        brought = [
            (await channel.ask(pull("T", subscription=large(n), expression_type=SQL92))).code for n in range(100, 104)
        ]
        assert brought == [20, 20, 20, 2]
        assert (await channel.ask(pop(exp=large(110), expType=SQL92))).code == 2  # whichever request brings one
        asked = {"topic": "T", "subString": large(111), "expressionType": SQL92}
        body = fastjson.dumps({"group": "CG", "subscriptionData": asked})
        assert (await channel.ask(request(46, {}, body))).code == 2
        await channel.ask(request(34, {}, subscribed("CG", large(120))))
        going_by = pull("T")
        going_by.ext["sysFlag"] = "0"
        assert (await channel.ask(going_by)).code == 2
