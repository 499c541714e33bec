"""Numbers on command lines: what is out of bounds is bad usage, with the bounds in the sentence."""

import argparse
import importlib
from collections.abc import Iterator

import pytest

from appliance.__main__ import COMMANDS, main
from uplink_spark.__main__ import main as centre
from uplink_spark.__main__ import make_parser
from uplink_spark.bounds import PORT, amount, factor, interval, landed_day, whole


def test_what_is_allowed_is_read_and_the_rest_is_told_what_is() -> None:
    assert (whole(-1)("-1"), whole(1, 3)("3"), amount()("0.5"), amount(zero=True)("0"), PORT("65535")) == (
        *(-1, 3, 0.5, 0.0),
        65535,
    )
    assert landed_day("2026-11-03") == "2026-11-03"
    for text in ("10 seconds", "1 minute", "500 milliseconds", "1 minute 30 seconds", "2 Hours"):
        assert interval(text) == text
    for read, text, said in (
        (whole(1, 3), "4", "'4' is not a whole number from 1 to 3"),
        (whole(0), "-5", "'-5' is not a whole number, 0 or more"),
        (whole(0), "1.5", "'1.5' is not a whole number, 0 or more"),
        (PORT, "70000", "'70000' is not a whole number from 0 to 65535"),
        (amount(), "0", "'0' is not a number above 0"),
        (amount(zero=True), "-1", "'-1' is not a number from 0"),
        (factor(0.5, 10), "0.4", "'0.4' is not a number from 0.5 to 10"),
        (factor(0.5, 10), "nan", "'nan' is not a number from 0.5 to 10"),
        (amount(), "nan", "'nan' is not a number above 0"),
        (amount(), "inf", "'inf' is not a number above 0"),
        (landed_day, "yesterday", "'yesterday' is not a day as 2026-11-03"),
        (landed_day, "2026-13-01", "'2026-13-01' is not a day as 2026-11-03"),
        (interval, "often", "'often' is not an interval as '10 seconds' or '2 minutes'"),
        (interval, "10", "'10' is not an interval as '10 seconds' or '2 minutes'"),
    ):
        with pytest.raises(argparse.ArgumentTypeError) as told:
            read(text)
        assert str(told.value) == said


@pytest.mark.parametrize(
    "given",
    [
        "topics create t --queues 0",
        "topics change t --queues -1",
        "topics create t --perm 9",
        "groups create g --retries -1",
        "offsets set g --topic t --queue 0 --at -5",
        "serve --broker-port 70000",
        "send t x --delay-ms -1",
        "send t x --timeout -1",
        "bench --messages 0",
        "tail t -n -3",
        "uplink discard --before -1",
    ],
)
def test_a_number_out_of_bounds_is_bad_usage(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given.split())
    assert ended.value.code == 2
    assert "error: argument " in capsys.readouterr().err


def test_a_number_out_of_bounds_is_bad_usage_at_the_centre_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        centre(["gateway", "--landing", "l", "--listen", "127.0.0.1:0", "--keep-days", "-1"])
    assert ended.value.code == 2
    assert "argument --keep-days: '-1' is not a whole number, 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("job", "options", "said"),
    [
        ("compact", "--table t --day yesterday", "argument --day: 'yesterday' is not a day"),
        ("bronze", "--landing l --table t --trigger often", "argument --trigger: 'often' is not an interval"),
        ("windows", "--landing l --vital v --trigger often", "argument --trigger: 'often' is not an interval"),
    ],
)
def test_a_time_that_is_none_ends_a_job_before_spark_starts(
    job: str, options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"uplink_spark.jobs.{job}").main(options.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from options_of(inner)


@pytest.mark.slow
def test_no_option_takes_a_number_without_bounds() -> None:
    parsers = [make_parser()]
    for command in COMMANDS.values():
        parsers.append(argparse.ArgumentParser())
        importlib.import_module(command.module).add_arguments(parsers[-1])
    unbounded = [action.dest for parser in parsers for action in options_of(parser) if action.type in (int, float)]
    assert unbounded == []
