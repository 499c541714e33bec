"""What programs print for people and for the journal: tables, log lines with a priority."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

GAP = "  "
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


class JournalFormatter(logging.Formatter):
    """`<N>` before each line, N as in sd-daemon(3); those of a traceback too. `named`: format of a name."""

    def __init__(self, named: str) -> None:
        super().__init__()
        self._named = named

    def format(self, record: logging.LogRecord) -> str:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
        lines = f"{self._named.format(record.name)} {record.getMessage()}".splitlines()
        if record.exc_info:
            lines += self.formatException(record.exc_info).splitlines()
        return "\n".join(f"<{priority}>{line}" for line in lines)


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
