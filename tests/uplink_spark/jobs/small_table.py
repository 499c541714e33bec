"""A table of files that nobody reads, for tests of what lists them."""

from uplink_spark.jobs.commits import DataFile, Table, Version


def add(table: Table, day: str, name: str, rows: int = 5) -> str:
    """Write and commit one file of a landed day; return its path."""
    path = f"data/landed_day={day}/{name}"
    whole = table.root / path
    whole.parent.mkdir(parents=True, exist_ok=True)
    whole.write_bytes(b"rows")
    file = DataFile(path, rows, 4, "data", ("a", "b"), ("T",), (1, 2), (3, 4))
    have = table.snapshot()
    table.commit(Version(have.version + 1, "append", "test", have.end, {"0": have.version + 1}, (file,), (), 1))
    return path
