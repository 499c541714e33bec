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


def table_of(seen: Iterable[Seen]) -> str:
    """Return the page: one row per feature in the order of the tests, one column per client; one failure is one."""
    rows = sorted(seen)
    verdicts = dict[tuple[str, str], str]()
    for each in rows:
        if verdicts.get((each.client, each.feature)) != FAILS:
            verdicts[each.client, each.feature] = each.verdict
    clients = sorted({client for client, _ in verdicts})
    features = dict.fromkeys(each.feature for each in rows)
    lines = [["Feature", *clients], ["---"] * (len(clients) + 1)]
    lines += [[feature, *(verdicts.get((client, feature), "") for client in clients)] for feature in features]
    return HEAD + "".join("| " + " | ".join(line) + " |\n" for line in lines)
