"""What commands of administration share: times as people write them, times nobody's calendar has, near names."""

import argparse
import json
import time

import pytest

from appliance.commands.asking import INNER_GROUPS, is_system_topic, known, legal, rates, show, stamp, time_ms
from netstack.client import ClientError


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86_400), ("0.5h", 1800)])
def test_a_span_is_that_long_ago(text: str, seconds: float) -> None:
    assert abs(time_ms(text) - (time.time() - seconds) * 1000) < 5000


def test_a_date_is_in_the_zone_of_who_asks_and_a_zone_may_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-2")  # two hours east
    time.tzset()
    try:
        assert time_ms("2026-11-21 14:00") == time_ms("2026-11-21T12:00+00:00") == 1_795_262_400_000
        assert stamp(1_795_262_400_000) == "2026-11-21 14:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert time_ms("1795262400000") == 1_795_262_400_000


@pytest.mark.parametrize("text", ["", "yesterday", "h", "nanh", "infd", "1e400s", "12:00", "²", "2026-13-01"])
def test_what_is_no_time_is_told_with_examples(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time such as 2026-11-21 14:00, or 15m, 2h, 1d"):
        time_ms(text)


@pytest.mark.parametrize(("ms", "shown"), [(0, ""), (-1, ""), (1 << 62, f"{1 << 62} ms"), (10**17, f"{10**17} ms")])
def test_a_time_that_a_client_made_up_is_a_number_and_no_error(ms: int, shown: str) -> None:
    assert stamp(ms) == shown


def test_an_unknown_name_suggests_a_near_one() -> None:
    assert known("readings", {"readings"}, "topic") == "readings"
    with pytest.raises(ClientError, match=r"no topic reading.*readings"):
        known("reading", ["readings", "alarms"], "topic")
    with pytest.raises(ClientError, match="no topic x"):
        known("x", [], "topic")


@pytest.mark.parametrize(("what", "longest"), [("topic", 127), ("group", 255)])
def test_a_name_that_cannot_be_is_told_with_what_is_allowed(what: str, longest: int) -> None:
    for name in ("a", "%RETRY%g|1_-Z", "x" * longest):
        assert legal(name, what) == name
    for name in ("", "x y", "ü", "a/b", "x" * (longest + 1)):
        with pytest.raises(ClientError, match=f"of a {what}: letters a-z .* 1 to {longest} characters"):
            legal(name, what)


def test_rows_are_all_of_json_or_the_chosen_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": 1, "b": "ü", "c": None}]
    assert show(rows, {"b": "B", "c": "C"}, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == rows[0]
    assert show(iter(rows), {"b": "B", "c": "C"}, as_json=False) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert (head.split(), row.split()[0]) == (["B", "C"], "ü")


def test_what_is_new_or_began_anew_has_no_rate_of_its_whole_past() -> None:
    assert rates({"old": 10}, {"old": 30, "new": 500}, 2.0) == {"old": 10.0, "new": 0.0}
    assert rates({"x": 1}, {"x": 1}, 0.0) == {"x": 0.0}


@pytest.mark.parametrize(
    ("name", "system"),
    [("TBW102", True), ("SCHEDULE_TOPIC_XXXX", True), ("RMQ_SYS_TRACE_TOPIC", True), ("readings", False), ("", False)],
)
def test_system_topics_are_told_from_those_of_applications(name: str, system: bool) -> None:
    assert is_system_topic(name) == system
    assert not "billing".startswith(INNER_GROUPS)
