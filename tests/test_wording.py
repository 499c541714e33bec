"""Phrases that readers stumbled over stay away from what operators read: commands, settings, errors and their pages."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.parsed import parsed

ROOT = Path(__file__).parent.parent
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("alerts*.yml")),
    ROOT / "docs/dashboard.json",
    ROOT / "systemd/rocketbox.toml",
)
PACKAGES = ("appliance", "netstack", "provisioning", "storage_driver", "uplink_spark", "watchdog")
CODE = tuple(path for top in PACKAGES for path in sorted((ROOT / top).rglob("*.py")))
READ = (*PAGES, *CODE, *sorted((ROOT / "docs/examples").glob("*.py")))
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
    "that is all there is room for": "which is the limit",
    "nobody agreed": "not confirmed",
    "--yes agrees": "--yes confirms",
    "lets nobody in": "is no longer valid",
    "nobody can get in": "no client has access",
    "retention by age rests": "retention by age is paused",
    "the product has ended": "the box has stopped",
    "a restart follows by itself": "the watchdog restarts the box",
    "over the own ports": "the box's own ports",
    "a restart forgets": "would be lost at a restart",
    "so it is with": "the same for",
    "what waits unshipped": "unshipped data",
    "for want of": "because X is missing",
    "by what came of them": "by result",
    "moment of their own": "their own delivery time",
    "gave up on": "dead letters",
    "does not stay up": "keeps failing",
    "made anew": "rebuilt",
    "begin anew": "start again",
    "begins anew": "starts again",
    "turned away": "refused",
    "swallows packets": "drops packets",
    "local door": "local socket",
    "given up before the gateway": "dropped before the gateway",
    "write over it": "overwrite",
    "stands there twice": "is listed twice",
    "obey nothing else": "accept no other key",
    "until somebody comes": "until a manual reset",
    "has not proven itself": "has not passed its self-test",
    "nears its end": "is near the end of its life",
    "goes on by itself": "continues automatically",
    "does not fit its hash": "does not match its hash",
    "to insist": "to install it anyway",
    "is told again": "is no longer muted",
    "what follows a failure": "reactions to failures",
    "took nothing for longest": "has read nothing for the longest time",
    "without help:": "automatic",
    "opens data": "gives access to data",
    "whatever the default": "independent of the default",
    "play a box": "simulate a box",
    "and as whom": "cluster and account",
}


@cache
def lower(path: Path) -> str:
    """Return the text of a file in lower case."""
    return path.read_text().lower()


@pytest.mark.parametrize("phrase", BANNED)
def test_the_phrase_is_gone(phrase: str) -> None:
    found = [str(path.relative_to(ROOT)) for path in READ if phrase.lower() in lower(path)]
    assert not found, f'{", ".join(found)}: write "{BANNED[phrase]}" instead of "{phrase}"'


CLUMSY = {  # in texts of errors, help and log lines: what to write
    r"(?<![Tt]here )\b(is|are) no (?!longer\b)": "is not a",
    r"\ballowed (is|are)\b": "at most N are allowed, or: allowed: A, B",
    r"\bknown are\b": "known: A, B",
}


@cache
def texts(path: Path) -> list[tuple[int, str]]:
    """Return line and text of every string of a file except docstrings."""
    tree = parsed(path.read_text())
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documents)
    return [(node.lineno, node.value) for node in strings if isinstance(node.value, str)]


@pytest.mark.parametrize("pattern", CLUMSY)
def test_texts_have_the_order_of_english(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in CODE for line, text in texts(path) if re.search(pattern, text)
    ]
    assert not found, f'{", ".join(found)}: write "{CLUMSY[pattern]}"'
