"""Remove files that no version of the last days lists: leftovers of killed tasks and of compacted or expired days.

python -m uplink_spark.jobs.vacuum --table DIR --days 7
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from uplink_spark.bounds import amount
from uplink_spark.jobs import care
from uplink_spark.jobs.waiting import run_job


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser("python -m uplink_spark.jobs.vacuum", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--table", required=True, help="folder or URL of the bronze or silver table")
    made.add_argument(
        "--days", type=amount(zero=True), default=7, help="keep files that a version of the last N days lists (7)"
    )
    made.add_argument(
        "--min-age-hours", type=amount(zero=True), default=24, help="keep younger files: a task may own them (24)"
    )
    given = made.parse_args(arguments)

    def job() -> None:
        removed = care.vacuum(given.table, given.days, min_age_hours=given.min_age_hours)
        print(f"vacuum table={given.table} removed={len(removed)}")

    return run_job("vacuum", job)


if __name__ == "__main__":
    sys.exit(main())
