"""What a member writes into the log of its tables, and what others make of it: changed rows, sans I/O.

A table is JSON: sections (objects) of rows, and single values beside them. A change holds the rows that are new or
different, the names of those that are gone, and the single values that changed. Changes say how rows are, not what
happened, so that a change that is applied twice, in order with those after it, does no harm. The whole table is a
change that begins with nothing. A journal is a list of byte strings that only grows, until it is replaced.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from storage_driver.named_tuple import NamedTuple

STATE_TOPIC: Final = "RBX_STATE"
MOST_BYTES: Final = 512 << 10  # of rows in one record; one row is less than a record may hold
SINGLE: Final = ""  # the section of single values; no table has a section of this name


class TableChange(NamedTuple):
    """Rows by section; `gone`: names of rows that are no more; `whole`: the table was emptied before."""

    table: str  # folder/name of its file
    rows: Mapping[str, Mapping[str, Any]]
    gone: Mapping[str, Sequence[str]]
    whole: bool = False


class JournalChange(NamedTuple):
    """Entries that were appended to a journal; `whole`: they replace all before."""

    table: str
    entries: Sequence[bytes]
    whole: bool = False


Change = TableChange | JournalChange


class ChangeIllegal(Exception):
    """A record of the state's topic is none of ours."""


def encode(change: Change) -> Iterator[bytes]:
    """Return the bodies of the records that carry a change, at least one, none much larger than MOST_BYTES."""
    parts = _table_parts(change) if isinstance(change, TableChange) else _journal_parts(change)
    for number, part in enumerate(parts):
        whole = change.whole and number == 0
        yield json.dumps({"table": change.table, "whole": whole, **part}, separators=(",", ":")).encode()


def _table_parts(change: TableChange) -> Iterator[dict[str, object]]:
    part: dict[str, dict[str, Any]] = {}
    size = 0
    for section, rows in change.rows.items():
        part.setdefault(section, {})
        for name, row in rows.items():
            part.setdefault(section, {})[name] = row
            size += len(name) + len(json.dumps(row))
            if size > MOST_BYTES:
                yield {"rows": part, "gone": {}}
                part, size = {}, 0
    yield {"rows": part, "gone": {section: list(names) for section, names in change.gone.items()}}


def _journal_parts(change: JournalChange) -> Iterator[dict[str, object]]:
    part: list[str] = []
    size = 0
    for entry in change.entries:
        if part and size + len(entry) > MOST_BYTES:
            yield {"entries": part}
            part, size = [], 0
        part.append(b64encode(entry).decode())
        size += len(entry)
    yield {"entries": part}


def decode(body: bytes) -> Change:
    """Return the change that a record carries. Raises ChangeIllegal."""
    try:
        found = json.loads(body)
        table, whole = str(found["table"]), found["whole"] is True
        if "entries" in found:
            return JournalChange(table, [b64decode(entry, validate=True) for entry in found["entries"]], whole)
        rows = {str(section): dict(named) for section, named in found["rows"].items()}
        gone = {str(section): list(map(str, names)) for section, names in found["gone"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise ChangeIllegal(f"not a change of a table ({len(body)} bytes): {exc}") from exc
    return TableChange(table, rows, gone, whole)


def applied(content: object, change: TableChange) -> dict[str, Any]:
    """Return a table with a change in it; `content` is its JSON, and may be changed."""
    table: dict[str, Any] = {} if change.whole or not isinstance(content, dict) else content
    for section, rows in change.rows.items():
        if section == SINGLE:
            table.update(rows)
            continue
        known = table.get(section)
        table[section] = {**known, **rows} if isinstance(known, dict) else dict(rows)
    for section, names in change.gone.items():
        part = table if section == SINGLE else table.get(section)
        if isinstance(part, dict):
            for name in names:
                part.pop(name, None)
    return table


class Differ:
    """Knows each row of a table as it was written last, by a hash: the rows themselves would be the table twice."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._known: dict[str, dict[str, int]] | None = None  # None: nothing of it is in the log

    def take(self, content: object) -> None:
        """The log holds this table."""
        self._known = _hashes(_sections(content))

    def forget(self) -> None:
        """Nobody knows what the log holds: the next change is the whole table."""
        self._known = None

    @property
    def knows(self) -> bool:
        """Whether it is known what the log holds."""
        return self._known is not None

    def change_of(self, section: str, rows: Mapping[str, Any]) -> TableChange | None:
        """Return what is different of some rows of a section, None as a row: it is gone. The rest is as it was."""
        if self._known is None:
            raise ValueError("nobody knows what the log holds")
        known, changed, gone = self._known.setdefault(section, {}), dict[str, Any](), list[str]()
        for name, row in rows.items():
            if row is None:
                gone += [name] if known.pop(name, None) is not None else []
            elif known.get(name) != (made := hash(json.dumps(row))):
                known[name], changed[name] = made, row
        if not changed and not gone:
            return None
        return TableChange(self._table, {section: changed}, {section: gone} if gone else {})

    def change_to(self, content: object) -> TableChange | None:
        """Return what is different now, None for nothing; from here on the log holds it."""
        sections = _sections(content)
        hashes, known = _hashes(sections), self._known
        self._known = hashes
        if known is None:
            return TableChange(self._table, sections, {}, whole=True)
        rows = {
            section: {
                name: row for name, row in named.items() if known.get(section, {}).get(name) != hashes[section][name]
            }
            for section, named in sections.items()
        }
        gone = {
            section: [name for name in was if name not in hashes.get(section, {})] for section, was in known.items()
        }
        rows = {section: named for section, named in rows.items() if named or section not in known}
        gone = {section: names for section, names in gone.items() if names}
        return TableChange(self._table, rows, gone) if rows or gone else None


def whole(table: str, content: object) -> TableChange:
    """Return the change that makes a table this, whatever it was."""
    return TableChange(table, _sections(content), {}, whole=True)


def _sections(content: object) -> dict[str, dict[str, Any]]:
    if not isinstance(content, dict):
        return {}
    sections = {name: value for name, value in content.items() if isinstance(value, Mapping)}
    single = {name: value for name, value in content.items() if not isinstance(value, Mapping)}
    rows = {str(name): {str(key): row for key, row in named.items()} for name, named in sections.items()}
    return {**rows, SINGLE: single} if single else rows


def _hashes(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {section: {name: hash(json.dumps(row)) for name, row in rows.items()} for section, rows in sections.items()}
