"""Which configuration and which data folder a command works on: the nearest word counts."""

import argparse
import os
from pathlib import Path

import pytest

from appliance.commands import settings
from appliance.commands.settings import as_owner_of, config_file, data_folder, machine_facts, read_config
from appliance.errors import ConfigError


def given(config: Path | None = None, data: Path | None = None) -> argparse.Namespace:
    return argparse.Namespace(config=config, data=data)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "INSTALLED", tmp_path / "etc/rocketbox.toml")
    monkeypatch.setattr(settings, "FACTORY", tmp_path / "serial")


def test_what_the_line_says_comes_before_the_unit_and_that_before_what_is_installed(tmp_path: Path) -> None:
    installed, unit = settings.INSTALLED, tmp_path / "unit/rocketbox.toml"
    environ = {"CONFIGURATION_DIRECTORY": str(tmp_path / "unit"), "STATE_DIRECTORY": str(tmp_path / "state")}
    assert config_file(given(), environ) is None
    for path in (installed, unit):
        path.parent.mkdir()
        path.write_text("")
    named = tmp_path / "named.toml"
    assert config_file(given(named), environ) == named  # also when it is not there: that is an error, not a silence
    assert config_file(given(), environ) == unit
    assert config_file(given(), {}) == installed
    assert data_folder(given(data=tmp_path / "d"), environ) == tmp_path / "d"
    assert data_folder(given(), environ) == tmp_path / "state"
    assert data_folder(given(), {}) == settings.INSTALLED_DATA
    assert data_folder(given(named), {}) == Path("var")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_config(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name in (".", "bytes"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_config(tmp_path / name)


def test_facts_come_from_the_nearest_folder_that_is_there(tmp_path: Path) -> None:
    facts = machine_facts(tmp_path / "not/yet/there")
    assert facts == machine_facts(tmp_path)
    settings.FACTORY.write_bytes(b"RB-1\n")
    assert machine_facts(tmp_path) != facts
    settings.FACTORY.write_bytes(b"\xff")
    assert machine_facts(tmp_path) == facts  # no serial number rather than a traceback


def test_root_works_as_the_owner_and_is_root_again_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = list[tuple[str, int]]()
    monkeypatch.setattr(settings.os, "geteuid", lambda: 0)  # type: ignore[attr-defined]
    for name in ("setegid", "seteuid"):
        monkeypatch.setattr(settings.os, name, lambda number, name=name: done.append((name, number)))  # type: ignore[attr-defined]
    monkeypatch.setattr(settings.os, "setgroups", lambda groups: done.append(("setgroups", len(groups))))  # type: ignore[attr-defined]
    monkeypatch.setattr(Path, "stat", lambda path, **_: argparse.Namespace(st_uid=7, st_gid=8, st_mode=0o40755))
    with pytest.raises(KeyError), as_owner_of(tmp_path):  # noqa: PT012
        assert done == [("setgroups", 0), ("setegid", 8), ("seteuid", 7)]  # groups go while it is still root
        raise KeyError
    assert done[3:5] == [("seteuid", 0), ("setegid", 0)]
    assert done[5][0] == "setgroups"


def test_of_a_configuration_that_no_memory_holds_the_beginning_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "box.toml"
    file.write_text("#")
    os.truncate(file, 8 << 40)
    with pytest.raises(ConfigError, match=r"has more than 1048576 characters"):
        read_config(file)
