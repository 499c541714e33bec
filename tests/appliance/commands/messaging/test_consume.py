"""consume: which messages, from where, until when; what was printed was consumed."""

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.interop.box import ROOT, Box


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_consumer_leaves_its_group_and_keeps_its_offset(
    rocketbox: Any, box: Box, number: signal.Signals
) -> None:
    topic = f"Interrupted{number}"
    rocketbox("send", topic, "x")
    command = [sys.executable, "-m", "appliance", "consume", topic, "--group", topic, "--namesrv", box.namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as consumer:
        assert consumer.stdout is not None
        assert json.loads(consumer.stdout.readline())["body"] == "x"
        consumer.send_signal(number)
        _, err = consumer.communicate(timeout=60)
    assert consumer.returncode == 130
    assert "Traceback" not in err
    assert rocketbox("consume", topic, "--group", topic, "--timeout", "0.3")[0] == 3


def test_of_a_topic_that_is_not_there_near_names_are_told(rocketbox: Any) -> None:
    rocketbox("send", "Temperature", "x")
    code, rows, err = rocketbox("consume", "Temperatur", "--timeout", "0.3")
    assert (code, rows) == (3, [])
    assert "no broker has this topic; did you mean Temperature?" in err


@pytest.mark.slow
def test_a_consumer_that_waits_for_a_topic_that_is_not_there_says_so_and_gets_its_first_message(
    rocketbox: Any, box: Box
) -> None:
    command = [sys.executable, "-m", "appliance", "consume", "Later", "--max", "1", "--namesrv", box.namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stderr.readline() == "rocketbox: waits for messages of Later: no broker has this topic\n"
        rocketbox("send", "Later", "x")
        assert json.loads(consumer.stdout.readline())["body"] == "x"


def bodies(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["body"] for row in rows)


def test_tags_and_sql_choose_the_messages(rocketbox: Any) -> None:
    for number in range(4):
        words = ("--tags", "odd" if number % 2 else "even", "--property", f"n={number}")
        rocketbox("send", "Chosen", str(number), *words)
    asked = ("consume", "Chosen", "--timeout", "2")
    code, rows, _ = rocketbox(*asked, "--group", "by_tag", "--tags", "odd||none", "--max", "2")
    assert (code, bodies(rows)) == (0, ["1", "3"])
    code, rows, _ = rocketbox(*asked, "--group", "by_sql", "--sql", "n BETWEEN 1 AND 2", "--max", "2")
    assert (code, bodies(rows)) == (0, ["1", "2"])


def test_the_most_that_is_wanted_is_not_exceeded_and_the_next_call_goes_on_behind_it(rocketbox: Any) -> None:
    for number in range(3):
        rocketbox("send", "Three", str(number), "--order-key", "k")  # one queue, so one order
    first = rocketbox("consume", "Three", "--group", "three", "--max", "2")
    assert (first[0], bodies(first[1])) == (0, ["0", "1"])
    code, rows, err = rocketbox("consume", "Three", "--group", "three", "--max", "1", "--quiet")
    assert (code, rows, err) == (0, [], "")
    code, rows, err = rocketbox("consume", "Three", "--group", "three", "--timeout", "0.3")
    assert (code, rows, err) == (3, [], "rocketbox: no message from Three within 0.3 s\n")


def test_an_expression_that_does_not_compile_is_told(rocketbox: Any) -> None:
    rocketbox("send", "Wrong", "x")
    code, rows, err = rocketbox("consume", "Wrong", "--group", "wrong", "--sql", "a >", "--timeout", "30")
    assert (code, rows) == (1, [])
    assert "Traceback" not in err
    assert err.count("\n") == 1
