"""What every job does at its edges: wait for the landing zone, say in one line why it ended."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from uplink_spark.errors import LandingError, UplinkError
from uplink_spark.zone.reader import ZoneReader

LOOK_EVERY_S = 0.5


def wait_for_zone(landing: str, seconds: float) -> ZoneReader:
    """Return the landing zone as soon as it is there. Raises LandingError after `seconds`."""
    until = time.monotonic() + seconds
    told = False
    while True:
        try:
            return ZoneReader(landing)
        except LandingError as error:
            if time.monotonic() >= until:
                raise
            if not told:
                print(f"waiting up to {seconds:g} s: {error}", file=sys.stderr, flush=True)
                told = True
        time.sleep(LOOK_EVERY_S)


_OURS = re.compile(r"uplink_spark\.[\w.]+: (.+)")
_JAVAS = re.compile(r"^: (.+)", re.MULTILINE)  # the line after "An error occurred while calling"


def reason_of(error: Exception) -> str:
    """Return our own sentence out of what Spark wrapped around it, else Java's, else the first line of the error."""
    text = str(error)
    found = _OURS.findall(text) or (_JAVAS.findall(text) if isinstance(error, Py4JError) else [])
    return found[-1].strip() if found else (text.strip().splitlines() or [type(error).__name__])[0]


def run_job(name: str, job: Callable[[], None]) -> int:
    """Return the exit code of a job: 0 done or interrupted, 1 with one sentence on stderr."""
    try:
        job()
    except KeyboardInterrupt:
        return 0
    except (UplinkError, PySparkException, Py4JError) as error:
        print(f"{name}: {reason_of(error)}", file=sys.stderr)
        return 1
    return 0
