"""A soak of a few seconds: everything it is made of works together, and what is lost is seen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.soak import load, run
from tests.soak.history import History
from tests.soak.report import markdown, save
from tests.soak.run import soak
from tests.soak.site import landed

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
async def test_a_few_seconds_of_everything_end_without_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "WARM_UP", 100)
    result = await soak(tmp_path, seconds=4, rate=50, seed=1)
    lost = [text for text in result.faults() if "grew" not in text]  # four seconds tell nothing about memory
    assert lost == []
    assert all(stream.acknowledged for stream in result.history.streams.values())
    assert result.cuts
    save(result, tmp_path / "report")
    assert "| sync | slow |" in markdown(result)
    assert (tmp_path / "report/soak-box.png").stat().st_size > 5_000


class Forgetful(History):
    """Loses one message on the way to one group, as a box would that never delivers it."""

    def deliver(self, stream: str, group: str, number: int, *, early: bool = False) -> bool:
        if (stream, group, number) == ("sync", "slow", 5):
            return True
        return super().deliver(stream, group, number, early=early)


def without_one(landing: Path) -> tuple[set[str], int]:
    keys, raw_bytes = landed(landing)
    return keys - {"batch:3"}, raw_bytes


@pytest.mark.soak
def test_a_message_that_is_lost_ends_the_command_with_an_error_and_is_named_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load, "WARM_UP", 100)
    monkeypatch.setattr(run, "CATCH_UP_S", 20.0)
    monkeypatch.setattr(run, "History", Forgetful)
    monkeypatch.setattr(run, "landed", without_one)
    assert run.main(["--minutes", "0.07", "--rate", "50", "--seed", "1", "--report", str(tmp_path)]) == 1
    for said in ((tmp_path / "soak.md").read_text(), capsys.readouterr().out):
        assert "* sync to slow: 1 acknowledged and lost (such as 5)" in said
        assert "* 1 acknowledged messages never arrived upstream" in said
        assert "not everything was delivered in time" in said


@pytest.mark.soak
def test_the_command_runs_an_hour_and_hands_a_failure_on(tmp_path: Path) -> None:
    wrong = ("MINUTES=x", "ARGS=tests/soak/test_history.py")
    shown = subprocess.run(["make", "-n", "soak"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "tests/soak/run.py --minutes 60 --report docs" in shown
    assert "--soak -m soak" in shown
    failed = subprocess.run(["make", "soak", *wrong], cwd=ROOT, capture_output=True, text=True)
    assert failed.returncode != 0
    assert "invalid float value: 'x'" in failed.stderr
