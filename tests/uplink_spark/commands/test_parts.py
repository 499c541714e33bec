"""What the commands of the centre print: sizes, ages, JSON."""

from __future__ import annotations

import json

import pytest

from uplink_spark.commands import COMMANDS
from uplink_spark.commands.parts import human_age, human_bytes, print_json


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"),
        ((1 << 30) - 1, "1024.0 MiB"), (1 << 30, "1.0 GiB"), (5 << 40, "5120.0 GiB"),
    ],
)  # fmt: skip
def test_sizes_keep_their_unit_up_to_its_border(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (60, "1 min"), (7199, "120 min"), (7200, "2 h"), (172_800, "2 d")],
)
def test_ages_keep_their_unit_up_to_its_border(seconds: float, text: str) -> None:
    assert human_age(seconds) == text


def test_json_is_one_sorted_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"b": b"\xff", "a": "ü\n"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert list(json.loads(out)) == ["a", "b"]


def test_each_command_has_its_own_name_and_a_line_of_help() -> None:
    names = [command.name for command in COMMANDS]
    assert len(set(names)) == len(names)
    assert all(command.text and "\n" not in command.text for command in COMMANDS)
