"""docs/interop.md: which client was seen to do what, written by the run that saw it."""

from pathlib import Path

HEAD = """# Tested features of stock clients

Written by `make interop`, which runs unmodified clients against a box; nothing here is edited by hand. *Works*: the
test passed, at its second try at the latest. *Not tried*: the machine that ran the tests lacked a tool.

"""
Verdicts = dict[tuple[str, str], str]
"""(client, feature) → what was seen."""


def write_table(file: Path, verdicts: Verdicts) -> None:
    """Write one row per feature and one column per client."""
    clients = sorted({client for client, _ in verdicts})
    features = list(dict.fromkeys(feature for _, feature in verdicts))
    rows = [["Feature", *clients], ["---"] * (len(clients) + 1)]
    rows += [[feature, *(verdicts.get((client, feature), "") for client in clients)] for feature in features]
    file.write_text(HEAD + "".join("| " + " | ".join(row) + " |\n" for row in rows))
