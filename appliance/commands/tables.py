"""What commands share when they talk to people: tables, near names, questions."""

import difflib
import sys
from collections.abc import Iterable, Sequence

GAP = "  "


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as their widest cell; numbers to the right."""
    print(table(head, rows), flush=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return what `print_table` prints."""
    given = [tuple(row) for row in rows]
    cells = [tuple(head), *(tuple(_text(cell) for cell in row) for row in given)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    numeric = [bool(given) and all(isinstance(row[at], int | float) for row in given) for at in range(len(head))]

    def line(row: Sequence[str]) -> str:
        placed = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return GAP.join(placed).rstrip()

    return "\n".join(map(line, cells))


def _text(cell: object) -> str:
    if cell is None or cell == "":
        return "-"
    return f"{cell:,.1f}" if isinstance(cell, float) else clean(str(cell))


def clean(text: str) -> str:
    """Return the text without control characters, which others' names may hold."""
    return "".join(char if char.isprintable() else "?" for char in text)


def near(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for a name that is nearly one of those known, else nothing."""
    found = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def confirmed(what: str, yes: bool) -> bool:
    """Return whether the operator agrees; without a terminal only --yes does."""
    if yes:
        return True
    if not sys.stdin.isatty():
        print("rocketbox: not interactive: add --yes", file=sys.stderr)
        return False
    print(f"{what} Type yes: ", end="", flush=True)
    return sys.stdin.readline().strip() == "yes"
