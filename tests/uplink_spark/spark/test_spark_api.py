"""What versions of Spark lack: readers work with the names all the same."""

import subprocess
import sys

from uplink_spark.spark.source_plan import BatchLimit
from uplink_spark.spark.spark_api import (
    HAS_FILTERS,
    HAS_LIMITS,
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    limit_of,
)

OLD = """
import sys
from pyspark.sql import datasource
for name in ("Filter", "EqualTo", "In", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"):
    delattr(datasource, name)
sys.modules["pyspark.sql.streaming.datasource"] = None
from uplink_spark.spark import spark_api
from uplink_spark.spark.source_filters import narrow
from uplink_spark.spark.source_options import parse_options
from uplink_spark.spark_source import CommitLogSource
assert not spark_api.HAS_FILTERS and not spark_api.HAS_LIMITS
assert narrow(parse_options({"path": "/nowhere"}), []).left == []
source = CommitLogSource({"path": "/nowhere"})
print(type(source.streamReader(source.schema())).__name__)
"""


def test_a_limit_is_that_of_bytes_rows_or_pieces() -> None:
    assert HAS_FILTERS
    assert HAS_LIMITS
    assert limit_of(ReadMaxBytes(7)) == BatchLimit(raw_bytes=7)
    assert limit_of(ReadMaxRows(7)) == BatchLimit(rows=7)
    assert limit_of(ReadMaxFiles(7)) == BatchLimit(pieces=7)
    assert limit_of(ReadAllAvailable()) == BatchLimit()


def test_a_version_without_filters_and_limits_gets_a_reader_that_needs_neither() -> None:
    done = subprocess.run([sys.executable, "-c", OLD], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "UnlimitedStreamReader", done.stderr
