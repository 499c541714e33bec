"""`make run` where something is in its way: a machine too busy for Spark's patience, a folder, a port."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece

EXAMPLES = Path(__file__).parents[3] / "docs/examples"
LATE = """#!/bin/sh
case "$*" in *python_streaming_source_runner*) [ -e '{told}' ] || {{ touch '{told}'; exec sleep 12; }} ;; esac
exec '{python}' "$@"
"""


@pytest.mark.soak  # the scratch folder is one whose name is too long for Unix sockets
def test_a_stream_whose_python_came_too_late_is_begun_again(landing: MadeLanding, tmp_path: Path) -> None:
    landing.land(log_piece([MadeRecord("Vitals", body=b'{"value": 7}', properties="run\x01r")], 0))
    told, python = tmp_path / "told", tmp_path / "python"
    python.write_text(LATE.format(told=told, python=sys.executable))
    python.chmod(0o755)
    command = [sys.executable, str(EXAMPLES / "vitals_job.py"), "--landing", str(landing.root), "--run", "r"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [*command, "--since-ms", "0", "--scratch", str(tmp_path / ("scratch" * 12))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": str(python)},
        ) as job,
    ):
        assert job.stdout
        said = (json.loads(line) for line in job.stdout)
        assert next(said) == {"ready": True}
        table = next(said)["table"]
        job.communicate(timeout=120)
    assert told.exists()
    assert [(row["topic"], row["messages"], row["vital_avg"]) for row in table] == [("Vitals", 1, 7.0)]
    assert "restarted: " in (tmp_path / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "said"),
    [(("--var", "/proc/none"), "/proc/none"), (("--gateway-port", "70000"), "--gateway-port 70000: a port is")],
)
def test_what_cannot_be_used_is_named_in_one_line(wrong: tuple[str, str], said: str) -> None:
    names = ("--namesrv-port", "--broker-port", "--gateway-port")
    ports = [word for name in names for word in (name, str(free_port()))]
    command = [sys.executable, str(EXAMPLES / "vitals.py"), *ports, *wrong]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert line.startswith(said)


@pytest.mark.slow
def test_all_ports_that_are_taken_are_named_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = ["--namesrv-port", str(one.getsockname()[1]), "--broker-port", str(other.getsockname()[1])]
        command = [sys.executable, str(EXAMPLES / "vitals.py"), *ports, "--gateway-port", str(free_port())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert [line.split(" by ")[0] for line in done.stderr.splitlines()] == [
        f"Port {number} is taken" for number in ports[1::2]
    ]


def test_a_disk_that_is_too_full_is_told_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import vitals

    monkeypatch.setattr(vitals, "used_share", lambda path: 0.93)
    ports = [word for name in ("namesrv", "broker", "gateway") for word in (f"--{name}-port", str(free_port()))]
    assert vitals.main(["--var", str(tmp_path / "var"), *ports]) == 2
    said = capsys.readouterr().out
    assert said.startswith(f"the disk under {tmp_path}/var is 93.0% full: ")
    assert "above 90 % a box refuses messages. Free some space, or choose a folder" in said


def test_a_stream_that_lags_behind_is_no_loss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import vitals

    found = {"rows": 2, "missing": 0, "double": 0, "gaps": 0, "unacknowledged": 0}
    tally = vitals.Tally(sent=2, acknowledged=["A", "B"])
    assert vitals.verdict(tally, found, str) == 1
    said = capsys.readouterr().out
    assert "2 acknowledged = 2 rows in Spark (0 of them counted by the stream so far), 0 missing" in said
    assert "nothing is lost: this machine is so busy" in said
    assert vitals.verdict(tally, found | {"missing": 1, "double": 1}, str) == 1
    assert "nothing is lost" not in capsys.readouterr().out
    tally.table = [{"messages": 2}]
    assert vitals.verdict(tally, found, str) == 0
