"""The edges of every job: a zone that is not there yet, and one sentence for what ended it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from uplink_spark.errors import ConfigError, LandingError
from uplink_spark.jobs import compact, expire, vacuum
from uplink_spark.jobs.waiting import reason_of, run_job, wait_for_zone
from uplink_spark.testing import MadeLanding

TOP = Path(__file__).resolve().parents[3]


def test_a_job_without_spark_is_one_sentence_with_the_next_step() -> None:
    without_libraries = [sys.executable, "-S", "-m", "uplink_spark.jobs.bronze", "--landing", "zone"]
    done = subprocess.run(without_libraries, cwd=TOP, capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "the jobs need pyspark, pyarrow, deltalake, not installed here: pip install 'rocketbox[spark]'"
    )
    assert done.returncode == 1


def test_a_zone_that_appears_is_taken_and_the_wait_was_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = list[float]()

    def sleep(seconds: float, really: Callable[[float], None] = time.sleep) -> None:
        if threading.current_thread() is not threading.main_thread():
            really(seconds)  # of a test before this one
            return
        looks.append(seconds)
        if len(looks) == 3:
            MadeLanding(tmp_path / "zone", shards=2).close()

    monkeypatch.setattr(time, "sleep", sleep)
    assert wait_for_zone(str(tmp_path / "zone"), 60).zone.shards == 2
    assert len(looks) == 3
    assert capsys.readouterr().err.count("waiting up to 60 s: ") == 1


def test_without_patience_the_first_look_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LandingError):
        wait_for_zone(str(tmp_path), 0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Py4J\n  uplink_spark.errors.LandingError: the zone is gone\n\tat x", "the zone is gone"),
        ("uplink_spark.a.B: outer\nuplink_spark.c.D: inner\n", "inner"),
        ("first line\nsecond", "first line"),
        ("", "ValueError"),
    ],
)
def test_our_own_sentence_is_found_in_what_spark_wraps_around_it(text: str, reason: str) -> None:
    assert reason_of(ValueError(text)) == reason


def test_a_job_ends_with_a_code_and_a_bug_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(error: BaseException) -> None:
        raise error

    assert run_job("j", lambda: None) == 0
    assert run_job("j", lambda: fails(KeyboardInterrupt())) == 0
    assert run_job("j", lambda: fails(ConfigError("option x cannot be used"))) == 1
    assert capsys.readouterr().err == "j: option x cannot be used\n"
    with pytest.raises(ZeroDivisionError):
        run_job("j", lambda: fails(ZeroDivisionError()))


def test_of_a_failure_inside_java_its_own_sentence_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise Py4JError("An error occurred while calling o7.start.\n: java.io.IOException: no room\n\tat x")

    assert run_job("j", fails) == 1
    assert capsys.readouterr().err == "j: java.io.IOException: no room\n"


@pytest.mark.parametrize(
    ("main", "options"),
    [(compact.main, ["--all"]), (vacuum.main, []), (expire.main, ["--days", "1"])],
)
def test_a_folder_that_is_no_table_ends_the_job_before_spark_starts(
    main: object, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--table", str(tmp_path / "none"), *options]) == 1  # type: ignore[operator]
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert str(tmp_path / "none") in said.err
    assert not (tmp_path / "none").exists()
