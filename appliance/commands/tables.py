"""What commands share when they talk to people: tables, near names, questions."""

import difflib
import sys
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for a name that is nearly one of those known, else nothing."""
    found = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def confirmed(what: str, yes: bool) -> bool:
    """Return whether the operator agrees; without a terminal only --yes does."""
    if yes:
        return True
    if not sys.stdin.isatty():
        print(f"rocketbox: not interactive: add --yes. {what}", file=sys.stderr)
        return False
    print(f"{what} Type yes: ", end="", flush=True)
    return sys.stdin.readline().strip() == "yes"
