"""`rocketbox --help`, `--version`, and the nearest word to a typo."""

import re

import pytest

from appliance.__main__ import COMMANDS, main
from appliance.commands.overview import GROUPS
from appliance.version import package_version


def test_every_command_is_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)


def test_help_lists_every_group_and_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert re.search(rf"(?m)^  {name} +{re.escape(command.purpose)}$", out)
    assert all(f"\n{title}:\n" in out for title in GROUPS)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rocketbox {package_version()}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "no command given; rocketbox --help lists them"),
        ("topcs list", "unknown command 'topcs', did you mean \"topics\"?"),
        ("xyzzy", "unknown command 'xyzzy'; rocketbox --help lists them"),
        ("--verison", 'unrecognized arguments: --verison, did you mean "--version"?'),
        ("topics lst", 'did you mean "list"?'),
        ("topics list --jsno", 'unrecognized arguments: --jsno, did you mean "--json"?'),
        ("config show --orign", 'did you mean "--origin"?'),
    ],
)
def test_a_typo_is_answered_with_the_nearest(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(words.split())
    assert exited.value.code == 2
    assert told in capsys.readouterr().err
