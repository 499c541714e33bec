"""Comments of columns are of columns that exist."""

from uplink_spark.jobs.bronze import schemas_of_table
from uplink_spark.jobs.silver import PER_MINUTE
from uplink_spark.jobs.status import BOX_STATUS
from uplink_spark.jobs.table.columns import COMMENTS


def test_each_comment_is_of_a_column_and_says_it_in_a_line() -> None:
    names = {name for schema in (*schemas_of_table().values(), PER_MINUTE, BOX_STATUS) for name in schema.names}
    assert set(COMMENTS) <= names | {"part", "landed_day"}
    assert all(0 < len(comment) < 130 for comment in COMMENTS.values())
