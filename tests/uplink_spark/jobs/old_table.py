"""Tables as earlier programs left them, for tests of taking them over."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from uplink_spark.jobs.table.commit_list import COMMITS, SCHEMAS
from uplink_spark.jobs.table.delta import Table


def commit(
    root: Path,
    version: int,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    end: Mapping[str, int] | None = None,
    origin: Mapping[str, str] | None = None,
    layout: int = 1,
) -> None:
    """Write one version of a commit list."""
    body = {
        "v": layout,
        "op": "append" if add and not remove else "replace",
        "writer": "bronze",
        "from": {},
        "to": {"0": version} if end is None else dict(end),
        "add": [
            {"path": path, "rows": 1, "bytes": 1, "part": path.split("/")[0].removeprefix("part=")} for path in add
        ],
        "remove": list(remove),
        "schema": 1,
        "at": 0,
        "origin": dict(origin or {}),
    }
    folder = root / COMMITS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{version:020d}.json").write_text(json.dumps(body))


def declare(root: Path, schema: pa.Schema) -> None:
    """Write the columns as schema 1."""
    columns = [[column.name, column.dataType.simpleString()] for column in from_arrow_schema(schema)]
    (root / SCHEMAS).mkdir(parents=True)
    (root / SCHEMAS / "1.json").write_text(json.dumps(columns))


def make_old(root: str, schema: pa.Schema) -> int:
    """Put the commit list of an earlier program in the place of a table's log; return its newest version."""
    table, folder = Table(root), Path(root)
    newest = table.snapshot()
    found = [(version, files, table.snapshot(version)) for version, files in table.appended(0)]
    for version, files, then in found:
        commit(folder, version, add=[file.path for file in files], end=then.end, origin=then.origin)
    declare(folder, schema)
    (folder / "_delta_log").rename(folder.parent / f"{folder.name}-log")
    return newest.version
