"""Remove whole landed days from the table; gaps, ranges and silver stay, `vacuum` frees the space.

python -m uplink_spark.jobs.expire --table DIR --days 365
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from uplink_spark.bounds import whole
from uplink_spark.jobs import care
from uplink_spark.jobs.waiting import run_job


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser("python -m uplink_spark.jobs.expire", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--table", required=True, help="folder or URL of the bronze table")
    made.add_argument("--days", type=whole(0, 700_000), default=365, help="days of landed time to keep (365)")
    given = made.parse_args(arguments)

    def job() -> None:
        done = care.expire(given.table, given.days)
        left_out = done.files_before - done.files_after
        print(f"expire table={given.table} files_left_out={left_out} rows_left_out={done.rows}")

    return run_job("expire", job)


if __name__ == "__main__":
    sys.exit(main())
