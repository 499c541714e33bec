"""`support`: what was collected, what is missing and why; a place that cannot be written is told."""

import argparse
import io
import json
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.commands.box import support
from appliance.commands.box.support import add_arguments, described, run
from appliance.support.bundle import MIB
from appliance.support.sources import BoxFolders, SupportFile


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A box of two files, one of which cannot be read: no program is started."""

    def fails() -> str:
        raise OSError("the disk hangs")

    def given(place: BoxFolders) -> list[SupportFile]:
        return [SupportFile("good.txt", lambda: "fine\n"), SupportFile("bad.txt", fails)]

    monkeypatch.setattr("appliance.support.bundle.parts", given)


def options(tmp_path: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["--data", str(tmp_path), *more])


def test_the_file_holds_what_could_be_read_and_says_what_could_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "box.tar.gz"
    assert run(options(tmp_path, "--to", str(out))) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{out}: ")
    assert "missing   bad.txt: " in said
    assert "the disk hangs" in said
    with tarfile.open(out) as tar:
        assert any(name.endswith("good.txt") for name in tar.getnames())
        assert not any(name.endswith("bad.txt") for name in tar.getnames())
    assert run(options(tmp_path, "--to", str(out), "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["file"], told["bytes"]) == (str(out), out.stat().st_size)


def test_a_pipe_gets_the_bytes_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=raw))
    assert run(options(tmp_path, "--to", "-")) == 0
    with tarfile.open(fileobj=io.BytesIO(raw.getvalue())) as tar:
        assert tar.getnames()


def test_people_read_one_line_for_each_part_that_is_not_there() -> None:
    row = {"name": "x", "reason": "too large"}
    manifest = {"redacted": {"a": 2, "b": 1}, "collected": ["a", "b"], "missing": [], "left_out": [row]}
    assert described(Path("/b.tar.gz"), 3 * MIB // 2, manifest) == (
        "/b.tar.gz: 1.50 MiB, 2 files, 3 secrets removed\n  left out  x: too large"
    )
    assert support.NAME.endswith(".tar.gz")
