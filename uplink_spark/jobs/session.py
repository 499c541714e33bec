"""The SparkSession of the jobs: settings that matter, and this package within reach of every Python worker."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import time
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import uplink_spark
from uplink_spark.errors import ConfigError
from uplink_spark.jobs.waiting import reason_of

PACKAGES = str(Path(uplink_spark.__file__).resolve().parents[1])
MASTER = re.compile(r"(?:(?P<name>[^\[\]:,/]+)|\[(?P<six>[0-9A-Fa-f:.]+)\]):(?P<port>[0-9]{1,5})")
MASTER_S, MASTER_WAIT_S, MASTER_AGAIN_S = 3.0, 15.0, 0.5  # to take a connection, to begin to listen, between tries
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

    master None: what spark-submit says, else local[*]. Raises ConfigError where Spark does not start.
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
    wanted = master or (submitted.get("spark.master") if submitted else None) or "local[*]"
    if wanted.startswith("spark://"):
        check_master(wanted)
    spark = _started(builder, wanted)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _started(builder: SparkSession.Builder, master: str) -> SparkSession:
    """Return the session. Raises ConfigError with what has to change, where that can be told."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._gateway is None and not _java().is_file():
        raise ConfigError(f"no Java at {_java()}: Spark needs Java 17 or newer, named by JAVA_HOME or in the PATH")
    try:
        return builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError) as error:
        what = f"Spark does not start with master {master} and {_java()} (Java 17 or newer is needed)"
        raise ConfigError(f"{what}: {reason_of(error)} See the log above.") from error


def check_master(url: str, *, wait_s: float = MASTER_WAIT_S) -> None:
    """Raise ConfigError where none of spark://HOST:PORT[,HOST:PORT...] takes a connection within the wait.

    That is for a master that starts beside the job. Spark itself tells after a minute, and nothing before.
    """
    places = []
    for place in url.removeprefix("spark://").split(","):
        found = MASTER.fullmatch(place)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise ConfigError(f"master {url}: {place or 'nothing'} is not HOST:PORT; write spark://HOST:PORT")
        places.append((place, (found["name"] or found["six"], int(found["port"]))))
    until, told = time.monotonic() + wait_s, False
    while True:
        reasons = []
        for place, address in places:
            try:
                socket.create_connection(address, MASTER_S).close()
            except (OSError, UnicodeError) as error:
                reasons.append(f"{place}: {getattr(error, 'strerror', None) or error}")
            else:
                return
        if time.monotonic() >= until:
            raise ConfigError(f"no Spark master at {url} ({'; '.join(reasons)}): start it, or correct --master")
        if not told:
            print(f"no Spark master at {url} yet ({'; '.join(reasons)}), waiting {wait_s:g} s for it", file=sys.stderr)
            told = True
        time.sleep(MASTER_AGAIN_S)


def _java() -> Path:
    """The program that Spark starts, there or not."""
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin/java") if home else Path(shutil.which("java") or "java")


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
