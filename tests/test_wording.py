"""Phrases that readers stumbled over stay away from what operators read: commands, settings, errors and their pages."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = (
    *(
        "README.md",
        "docs/cli.md",
        "docs/configuration.md",
        "docs/architecture.md",
        "docs/CONTRIBUTING.md",
        "docs/box.md",
        "docs/client.md",
        "docs/durability.md",
        "docs/security.md",
        "docs/spark.md",
        "docs/threat-model.md",
        "docs/glossary.md",
        "docs/interop.md",
        "docs/operate.md",
        "docs/limits.md",
        "docs/quickstart-box.md",
    ),
    "systemd/rocketbox.toml",
)
PACKAGES = ("appliance", "netstack", "provisioning", "storage_driver", "uplink_spark", "watchdog")
READ = [*(ROOT / page for page in PAGES)] + [
    path for top in (*PACKAGES, "docs/examples") for path in sorted((ROOT / top).rglob("*.py"))
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
    "who is let in": "access control",
    "who looks in": "observation",
    "durable proof": "last disk sync",
    "accepted proof": "last port check",
    "not at the last hour's rate": "not filling up",
    "it is of no finished commit": "left by an unfinished commit",
    "bytes are no piece": "not a valid piece (N bytes)",
    "no row lies between": "start is after end, no row matches",
    "this one is to come again": "too many long polls, retry in a few seconds",
    "the old are in force": "the old certificate stays in use",
    "pins nothing": "no longer blocks deletion",
    "a serial number is given once": "serial number already assigned",
    "more stands above": "see the log above",
    "comes again has other seqs": "re-landed data has new sequence numbers",
    "without a fork": "the fork offset is missing",
    "log has them no more": "the log no longer has them",
    "what of rocketmq": "unsupported features of RocketMQ",
    "accounts for every message": "compares sent and received messages",
    "what a stranger can send": "threat model",
    "until told otherwise": "by default",
    "how the box fares and why": "health and its reasons",
    "without anybody near it": "unattended",
    "whoever is woken": "the operator on call",
    "what leaves the disk": "retention",
    "the kafka source's habits": "compared with the Kafka source",
    "when something looks wrong": "troubleshooting",
    "when something dies": "failures of servers",
    "what the code keeps to": "code rules",
    "keeping strangers out": "security",
    "nobody, ever": "always refused",
    "whose a thing is": "ownership",
    "leave the old in force": "the old certificate stays in use",
    "a disk that lied": "a disk that ignores syncs",
    "were seen to do": "tested features",
    "so that nobody relies on more": "the remaining risks",
    "is not yours": "foreign",
    "gone all the same": "lost",
    "what ext4 does not tell": "ext4 can hide a failed flush",
    "leading nowhere": "an invalid entry",
}


@pytest.mark.parametrize("phrase", BANNED)
def test_the_phrase_is_gone(phrase: str) -> None:
    found = [str(path.relative_to(ROOT)) for path in READ if phrase.lower() in path.read_text().lower()]
    assert not found, f'{", ".join(found)}: write "{BANNED[phrase]}" instead of "{phrase}"'
