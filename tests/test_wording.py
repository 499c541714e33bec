"""Phrases that readers stumbled over stay away from what operators read: commands, settings, errors and their pages."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/cli.md", "docs/configuration.md", "docs/quickstart-box.md", "systemd/rocketbox.toml")
READ = [*(ROOT / page for page in PAGES)] + [
    path for top in ("appliance", "storage_driver", "docs/examples") for path in sorted((ROOT / top).rglob("*.py"))
]
BANNED = {  # phrase: what to write
    "count does not come out even": "the counts differ",
    "how the box fares": "health of the box",
    "how a running box fares": "health",
    "how they fare,": "their state",
    "how it fares": "health",
    "This machine without a word": "no login locally",
    "A run says the whole configuration": "settings that are not given go back to their defaults",
    "is signed in by it": "authenticates by it",
    "the part is off": "X is disabled; set Y",
    "where nobody can be asked": "not interactive: add --yes",
    "appends rest": "writes are blocked until usage is below",
    "dearer by half": "50-100 % more",
    "what of RocketMQ a box does not have": "unsupported features",
    "then rest: the mark": "read-only service",
}


@pytest.mark.parametrize("phrase", BANNED)
def test_the_phrase_is_gone(phrase: str) -> None:
    found = [str(path.relative_to(ROOT)) for path in READ if phrase.lower() in path.read_text().lower()]
    assert not found, f'{", ".join(found)}: write "{BANNED[phrase]}" instead of "{phrase}"'
