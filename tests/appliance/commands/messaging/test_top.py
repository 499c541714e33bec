"""`top`: the busiest and the most behind first, cut at the rows asked for."""

import argparse
import json

import pytest

from appliance.commands.messaging.top import CLEAR, _print

TOPICS, ENDS = {"slow": 1.0, "fast": 50.0, "idle": 0.0, "also": 0.0}, {"slow": 10, "fast": 20, "idle": 500, "also": 500}
GROUPS, LAGS = {"ok": 9.0, "late": 1.0, "later": 1.0}, {"ok": 0, "late": 7, "later": 70}


def shown(as_json: bool, rows: int, capsys: pytest.CaptureFixture[str]) -> str:
    _print(TOPICS, ENDS, GROUPS, LAGS, argparse.Namespace(json=as_json, rows=rows))
    return capsys.readouterr().out


def test_programs_get_one_line_in_that_order(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(True, 15, capsys)
    assert out.count("\n") == 1
    found = json.loads(out)
    assert [row["topic"] for row in found["topics"]] == ["fast", "slow", "also", "idle"]
    assert found["topics"][0] == {"topic": "fast", "in_per_s": 50.0, "messages": 20}
    assert [(row["group"], row["lag"]) for row in found["groups"]] == [("later", 70), ("late", 7), ("ok", 0)]


def test_people_get_as_many_rows_as_they_asked_for_and_no_escapes_in_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = shown(False, 1, capsys)
    assert CLEAR not in out
    assert [line.split()[0] for line in out.splitlines() if line] == ["TOPIC", "fast", "GROUP", "later"]
