"""The SparkSession of the jobs: settings that matter, and this package within reach of every Python worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import uplink_spark

PACKAGES = str(Path(uplink_spark.__file__).resolve().parents[1])
# Arrow's checks of every single value, after Spark has looked at the same bits: a seventh of what the JVM does.
ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
DEFAULTS = {
    "spark.driver.defaultJavaOptions": ARROW,  # for the JVM to be started; spark-submit: --driver-java-options
    "spark.executor.defaultJavaOptions": ARROW,  # stands before what spark-defaults.conf has as extraJavaOptions
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",  # 11 to 26 % faster than TCP between JVM and Python
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "false",  # partitions here are small and known; AQE costs a plan per batch
    "spark.log.level": "ERROR",
}


def open_session(name: str, *, master: str | None = None, settings: dict[str, str] | None = None) -> SparkSession:
    """Return a session; what spark-submit or `settings` gives wins over DEFAULTS.

    master None: what spark-submit says, else local[*].
    """
    _reach_packages()
    builder: SparkSession.Builder = SparkSession.builder.appName(name)
    submitted = _submitted() if "SPARK_ENV_LOADED" in os.environ else None
    if master or submitted is None:
        builder = builder.master(master or "local[*]")
    own = {
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),  # fixed by a stream's first run
        "spark.executorEnv.PYTHONPATH": PACKAGES,
    }
    for key, value in (DEFAULTS | own).items():
        if submitted is None or not submitted.contains(key):
            builder = builder.config(key, value)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _submitted() -> SparkConf:
    """What spark-submit was given: its JVM knows, and without a way to it a SparkConf is empty."""
    SparkContext._ensure_initialized()
    return SparkConf()


def _reach_packages() -> None:
    """Let Python workers find these packages and this interpreter; bind to loopback unless told otherwise."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    java = Path(sys.prefix, "java")  # the one that `make setup` chose
    if "JAVA_HOME" not in os.environ and java.exists():
        os.environ["JAVA_HOME"] = str(java)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if PACKAGES not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGES, *paths])
