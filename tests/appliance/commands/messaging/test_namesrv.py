"""`namesrv`: what a file for `mqnamesrv -c` means here, and what of it is passed over."""

import argparse
import tomllib
from pathlib import Path

import pytest

from appliance.commands.messaging.namesrv import MISSING_FILE, WRONG_CONFIG, add_arguments, run


def namesrv(*given: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(list(given)))


def test_known_keys_become_toml_and_the_others_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=9877\norderMessageEnable = true\nclusterTest=true\ncolour=red\n")
    assert namesrv("-c", str(file)) == 0
    said = capsys.readouterr()
    assert tomllib.loads(said.out) == {"listen": {"namesrv_port": 9877}, "namesrv": {"order_messages": True}}
    assert "rocketbox: clusterTest has no effect here" in said.err
    assert "rocketbox: colour is unknown" in said.err


def test_all_options_are_printed_as_mqnamesrv_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=9877\n")
    assert namesrv("-c", str(file), "-p") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "listenPort=9877" in lines
    assert "productEnvName=center" in lines


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, MISSING_FILE, "no such file; pass one with -c"),
        ("listenPort=70000", WRONG_CONFIG, "0 to 65535"),
        ("listenPort=x", WRONG_CONFIG, "listen.namesrv_port"),
        ("bindAddress=a b", WRONG_CONFIG, "listen.host"),
    ],
)
def test_what_cannot_work_is_told_with_the_codes_of_mqnamesrv(
    text: str | None, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "namesrv.conf"
    if text is not None:
        file.write_text(text)
    assert namesrv("-c", str(file)) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_a_folder_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert namesrv("-c", str(tmp_path)) == WRONG_CONFIG
    assert capsys.readouterr().err == f"rocketbox: {tmp_path}: Is a directory\n"
