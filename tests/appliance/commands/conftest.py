"""A running box, and the commands that talk to it as a shell would call them."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.__main__ import main
from tests.interop.box import Box


@pytest.fixture(scope="module")
def box(module_path: Path) -> Iterator[Box]:
    box = Box(module_path / "data")
    box.start()
    yield box
    assert box.stop() == 0


@pytest.fixture
def rocketbox(box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command and gives (exit code, rows of stdout, stderr)."""
    monkeypatch.setenv("NAMESRV_ADDR", box.namesrv)

    def run(*arguments: str, stdin: str = "") -> tuple[int, list[dict[str, Any]], str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(arguments)
        captured = capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return run
