"""Rewrite the files of a landed day into few large ones, sorted by box, topic and store time.

python -m uplink_spark.jobs.compact --table DIR --day 2026-11-03     (or --all: every day but today's)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from uplink_spark.bounds import landed_day, whole
from uplink_spark.jobs import care, tables
from uplink_spark.jobs.session import open_session
from uplink_spark.jobs.table.parquet import day_of
from uplink_spark.jobs.waiting import run_job


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser("python -m uplink_spark.jobs.compact", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--table", required=True, help="folder or URL of the bronze or silver table")
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument("--day", type=landed_day, help="a landed day, for example 2026-11-03")
    which.add_argument("--all", action="store_true", help="every landed day except today")
    made.add_argument("--target-mib", type=whole(1), default=256, help="size of a file (256)")
    made.add_argument("--z-order", action="store_true", help="along a z-curve over box and topic instead of sorted")
    made.add_argument("--master", help="Spark master (local[*])")
    given = made.parse_args(arguments)

    def job() -> None:
        snapshot = tables.open_table(given.table).snapshot()
        today = day_of(time.time_ns() // 1_000_000)
        days = [given.day] if given.day else [day for day in care.days(snapshot) if day != today]
        if not days:
            print("compact: nothing to do, the table has no landed day before today", flush=True)
            return
        spark = open_session("rocketbox compact", master=given.master)
        for day in days:
            target_bytes = given.target_mib * care.MIB
            done = care.compact(spark, given.table, day, target_bytes=target_bytes, z_order=given.z_order)
            print(f"compact day={day} files={done.files_before}->{done.files_after} rows={done.rows}", flush=True)

    return run_job("compact", job)


if __name__ == "__main__":
    sys.exit(main())
