"""Every command and verb shows at least one example, and each example is one that its parser takes."""

import argparse
import importlib
import re
import shlex
from collections.abc import Iterator

import pytest

from appliance.__main__ import COMMANDS, main
from appliance.commands.examples import FURTHER, add_examples


def paths_of(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield a command and all its verbs."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, each in action.choices.items():
                yield from paths_of(f"{name} {verb}", each)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_verb_has_examples_in_its_help_that_its_parser_takes(name: str) -> None:
    parser = argparse.ArgumentParser(prog=f"rocketbox {name}")
    importlib.import_module(COMMANDS[name].module).add_arguments(parser)
    add_examples(name, parser)
    for path, each in paths_of(name, parser):
        shown = [line.strip() for line in each.format_help().splitlines()]
        lines = [line for line in shown if f"{line} ".startswith(f"rocketbox {path} ")]
        assert lines, path
        for line in lines:
            words = shlex.split(re.split(r" {4,}| \| | > ", line)[0])
            parser.parse_args(words[2:])


def test_help_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["uplink", "export", "--help"])
    assert "examples:\n  rocketbox uplink export --to /media/stick\n" in capsys.readouterr().out


def test_no_example_is_of_a_command_that_is_not_there() -> None:
    lines = [line for line in FURTHER.splitlines() if line]
    assert {line.split()[1] for line in lines} <= COMMANDS.keys()
    assert len(set(lines)) == len(lines)
