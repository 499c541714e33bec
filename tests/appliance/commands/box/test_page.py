"""`rocketbox page` without a configuration file: the page of the box that runs in the data folder."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from appliance.__main__ import main
from appliance.access.page_token import NAME
from appliance.commands import settings


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ({"host": "127.0.0.1", "port": 8099}, "http://localhost:8099/\nthis machine only"),
        ({"host": "::1", "port": "8099"}, "off: no configuration file: pass that of the box with --config FILE"),
        (None, "off: no configuration file"),
    ],
)
def test_the_page_of_a_running_box_is_found_without_its_configuration(
    page: object, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RUNTIME_DIRECTORY", "CONFIGURATION_DIRECTORY", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings, "INSTALLED", tmp_path / "none.toml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "var/run").mkdir(parents=True)
    (tmp_path / "var/run/health.json").write_text(json.dumps({"page": page}))
    assert main(["page", "--data", "var"]) == 0
    assert capsys.readouterr().out.startswith(told)
    (tmp_path / "box.toml").write_text("[page]\nport = 8100\n")
    assert main(["page", "--data", "var", "--config", "box.toml"]) == 0
    assert capsys.readouterr().out.startswith("http://localhost:8100/\n"), "a file that is named counts"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for another user")
@pytest.mark.parametrize("option", ["--token", "--new-token"])
def test_a_token_that_root_makes_can_be_read_by_the_box(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with TemporaryDirectory() as folder:  # others may go through the folders above
        os.chown(folder, 65534, 65534)
        assert main(["page", "--data", folder, option]) == 0
        token = Path(folder) / NAME
        assert token.read_text().strip() in capsys.readouterr().out
        assert (token.stat().st_uid, os.geteuid()) == (65534, 0)
