"""docs/interop.md: which client was seen to do what, written by the run that saw it."""

from collections.abc import Mapping
from pathlib import Path

HEAD = """# Tested features of stock clients

Written by `make interop`, which runs unmodified clients against a box; nothing here is edited by hand. *Works*: the
test passed. *Not tried*: the machine that ran the tests lacked a tool.

"""
BESIDE = """
## The same tests at {}

In the same run, with its proxy in local mode for the clients of RocketMQ 5.

"""
BOX = "box"
Verdicts = dict[str, dict[tuple[str, str], str]]
"""Where → (client, feature) → what was seen."""


def write_table(file: Path, verdicts: Verdicts) -> None:
    """Write one row per feature and one column per client; what other brokers did follows in tables of its own."""
    parts = [HEAD, _table(verdicts.get(BOX, {}))]
    for place in sorted(verdicts.keys() - {BOX}):
        parts += [BESIDE.format(place), _table(verdicts[place])]
    file.write_text("".join(parts))


def _table(verdicts: Mapping[tuple[str, str], str]) -> str:
    clients = sorted({client for client, _ in verdicts})
    features = list(dict.fromkeys(feature for _, feature in verdicts))
    rows = [["Feature", *clients], ["---"] * (len(clients) + 1)]
    rows += [[feature, *(verdicts.get((client, feature), "") for client in clients)] for feature in features]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)
