"""Spark jobs over the landing zone."""

import importlib.util
import sys

NEEDED = ("pyspark", "pyarrow", "deltalake")

if sys.argv[:1] == ["-m"]:  # what Python says while `python -m uplink_spark.jobs.JOB` looks for the job
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        step = "pip install 'rocketbox[spark]', or make setup in a checkout"
        sys.exit(f"the jobs need {', '.join(lacking)}, not installed here: {step}")
