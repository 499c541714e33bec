"""docs/interop.md: which client was seen to do what, written by the run that saw it."""

from collections.abc import Iterable
from typing import NamedTuple

HEAD = """# Tested features of stock clients

Written by `make interop`, which runs unmodified clients against a box; nothing here is edited by hand. *Works*: the
test passed, at its second try at the latest. *Not tried*: the machine that ran the tests lacked a tool.

"""
FAILS = "**fails**"


class Seen(NamedTuple):
    """What became of one test: where it stands, whose feature it tried, its verdict."""

    file: str
    line: int
    client: str
    feature: str
    verdict: str


def table_of(seen: Iterable[Seen], page: str = "") -> str:
    """Return the page: one row per feature in the order of the tests, one column per client; one failure is one.

    `page` is an earlier one: what these tests did not try stays as it says, and rows that it lacks come last.
    """
    rows = sorted(seen)
    tried = dict[tuple[str, str], str]()
    for each in rows:
        if tried.get((each.client, each.feature)) != FAILS:
            tried[each.client, each.feature] = each.verdict
    verdicts = {**read(page), **tried}
    clients = sorted({client for client, _ in verdicts})
    features = dict.fromkeys(feature for _, feature in verdicts)
    lines = [["Feature", *clients], ["---"] * (len(clients) + 1)]
    lines += [[feature, *(verdicts.get((client, feature), "") for client in clients)] for feature in features]
    return HEAD + "".join("| " + " | ".join(line) + " |\n" for line in lines)


def read(page: str) -> dict[tuple[str, str], str]:
    """Return what a page says: (client, feature) → verdict, in the order of its rows."""
    lines = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| ")]
    clients, found = lines[0] if lines else [], dict[tuple[str, str], str]()
    for feature, *cells in lines[2:]:
        found |= {(client, feature): cell for client, cell in zip(clients[1:], cells, strict=True) if cell}
    return found
