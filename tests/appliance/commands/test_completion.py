"""`completion`: a script over all commands and verbs, whose words cannot break out of it."""

import argparse

from appliance.__main__ import COMMANDS, main
from appliance.commands.completion import _words, script


def test_verbs_options_and_choices_are_words_of_their_place() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("shell", nargs="?", choices=("bash", "zsh"))
    verbs = parser.add_subparsers()
    verbs.add_parser("list").add_argument("-a", "--all", action="store_true")
    words = dict(_words("/topics", parser))
    assert words["/topics"] == ["--help", "--json", "bash", "zsh", "list"]
    assert words["/topics/list"] == ["--help", "--all"]  # short ones nobody completes


def test_the_script_has_a_case_for_each_place_and_none_twice() -> None:
    made = script({"": ["a"], "/a": ["b", "--x"], "/a/b": ["--y"]})
    assert "/a|/a/b) path=" in made
    assert '        "/a") known="b --x" ;;' in made
    assert '        "") known="a" ;;' in made
    assert "{" not in made.replace("${", "").replace("() {", "")  # nothing of the template is left


def test_each_command_is_completed(capsys: object) -> None:
    assert main(["completion", "bash"]) == 0
    out = capsys.readouterr().out  # type: ignore[attr-defined]
    for name in COMMANDS:
        assert f'        "/{name}") known=' in out
    assert "\\" not in out
    assert "`" not in out.partition("\n")[2]
