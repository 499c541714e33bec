"""The reference of the settings: complete, true to `settings.py`, and the files made of it are as it says."""

import re
import tomllib
from pathlib import Path

import pytest

from appliance.__main__ import main
from appliance.commands.box.config import with_value
from appliance.configuration.config import HostFacts, load_config
from appliance.configuration.settings import rules, tables
from appliance.configuration.settings_docs import EXAMPLES, TYPES, example, page, template

ROOT = Path(__file__).parents[3]
FACTS = HostFacts(1 << 40, "", "host")
KEYS = {f"{table}.{name}": key for table, kind in tables().items() for name, key in kind.keys.items()}


def test_the_page_is_what_the_settings_say() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == page(), "rocketbox config reference > docs/configuration.md"


def test_the_template_is_what_the_settings_say() -> None:
    assert (ROOT / "systemd/rocketbox.toml").read_text() == template(), (
        "rocketbox config template > systemd/rocketbox.toml"
    )


@pytest.mark.parametrize("name", KEYS)
def test_a_key_has_a_meaning_a_type_a_row_and_an_example_it_allows(name: str) -> None:
    key = KEYS[name]
    assert len(key.meaning.strip()) >= 5, f"{name} has no meaning in settings.py"
    assert type(key.rule) in TYPES
    assert f"| `{name}` |" in page()
    spelled = example(name, key)
    assert spelled not in ('""', "[]"), f"{name}: its default is empty, add an example to settings_docs.EXAMPLES"
    key.rule.read(tomllib.loads(f"value = {spelled}")["value"])


def test_examples_are_of_keys_there_are() -> None:
    assert EXAMPLES.keys() <= rules().keys()


def test_every_table_has_a_purpose() -> None:
    assert all(kind.__doc__ for kind in tables().values())


def test_the_template_as_it_is_sets_nothing_and_uncommented_it_sets_every_default() -> None:
    plain = load_config("", facts=FACTS)
    as_it_is = load_config(template(), facts=FACTS)
    uncommented = re.sub(r"(?m)^#(?=[a-z0-9_]+ = )", "", template())
    every = load_config(uncommented, facts=FACTS)
    for name in tables():
        assert getattr(as_it_is, name) == getattr(every, name) == getattr(plain, name)
    assert sum(len(table) for table in tomllib.loads(uncommented).values()) == len(KEYS)
    assert all(table == {} for table in tomllib.loads(template()).values())


@pytest.mark.slow
def test_one_key_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--explain", "limits.connections"]) == 0
    out = capsys.readouterr().out
    for told in ("total connections", "integer", "8 to 65536", "1024", "ROCKETBOX_LIMITS_CONNECTIONS", "next start"):
        assert told in out


def test_a_mistyped_key_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--explain", "limits.conections"]) == 78
    assert 'did you mean "limits.connections"?' in capsys.readouterr().err


@pytest.mark.parametrize(("verb", "made"), [("reference", page), ("template", template)])
def test_the_command_prints_it(verb: str, made: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", verb]) == 0
    assert capsys.readouterr().out.rstrip("\n") == made().rstrip("\n")  # type: ignore[operator]


def test_a_value_set_in_the_template_lands_in_its_table() -> None:
    text = with_value(template(), "store.retention_h", "48")
    assert load_config(text, facts=FACTS).store.retention_h == 48
    assert tomllib.loads(text)["store"] == {"retention_h": 48}
