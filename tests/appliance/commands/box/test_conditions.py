"""`rocketbox conditions` on a real box: what holds, muting over a restart, and what cannot be asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.__main__ import main
from tests.ports import free_port

ROOT = Path(__file__).parents[4]


class Served:
    """A real `serve` whose access is open, which is a condition."""

    def __init__(self, data: Path) -> None:
        file = data / "box.toml"
        ports = f"broker_port = {free_port()}\nnamesrv_port = {free_port()}\n"
        file.write_text(f"[listen]\n{ports}[access]\nmode = 'open'\n[store]\nsegment_mib = 16\n")
        words = [sys.executable, "-m", "appliance", "serve", "--config", str(file), "--data", str(data)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready ")

    def end(self) -> None:
        self.process.terminate()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(20)


def health(data: Path) -> tuple[str, list[str], list[str]]:
    seen = json.loads((data / "run/health.json").read_text())
    return seen["state"], [one["id"] for one in seen["reasons"]], [one["id"] for one in seen["muted"]]


@pytest.mark.slow
def test_a_known_condition_is_muted_over_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--data", str(tmp_path)]
    box = Served(tmp_path)
    try:
        assert health(tmp_path) == ("degraded", ["access_open"], [])
        assert main(["status", *at]) == 1
        assert main(["conditions", *at]) == 0
        assert "access.mode is open" in capsys.readouterr().out
        assert main(["conditions", "mute", "acess_open", *at]) == 1
        assert "there is no condition 'acess_open'; current conditions: access_open" in capsys.readouterr().err
        assert main(["conditions", "mute", "access_open", *at]) == 0
    finally:
        box.end()
    box = Served(tmp_path)
    try:
        assert health(tmp_path) == ("ok", [], ["access_open"])
        assert main(["status", *at]) == 0
        assert "muted access_open" in capsys.readouterr().out
        assert main(["conditions", "unmute", "access_open", *at]) == 0
    finally:
        box.end()


def test_without_a_box_or_an_id_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conditions", "mute", "--data", str(tmp_path)]) == 2
    assert "needs an ID" in capsys.readouterr().err
    assert main(["conditions", "mute", "access_open", "--data", str(tmp_path)]) == 1
    assert "is the box running?" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["conditions", "--data", str(tmp_path)]) == 1
    assert "D200  -      no health file: the box is not running" in capsys.readouterr().out
    assert main(["conditions", "--docs"]) == 0
    assert capsys.readouterr().out.startswith("| condition |")
