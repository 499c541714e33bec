import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from uplink_spark.jobs.session import PACKAGES
from uplink_spark.testing import MadeLanding

pytestmark = pytest.mark.slow


def test_a_session_adds_its_java_options_to_those_of_spark_defaults(spark: Any) -> None:
    java = spark.sparkContext._jvm.java.lang
    given = set(java.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert {"-Darrow.enable_unsafe_memory_access=true", "-XX:TieredStopAtLevel=1"} <= given


@pytest.mark.parametrize(
    ("master", "java", "sentence"),
    [
        ("local[1]", "nowhere", "bronze: no Java at nowhere/bin/java: Spark needs Java 17 or newer"),
        ("sprk://x", None, "bronze: Spark does not start with master sprk://x and "),
    ],
)
def test_a_spark_that_cannot_start_ends_the_job_with_what_has_to_change(
    master: str, java: str | None, sentence: str, landing: MadeLanding, tmp_path: Path, spark_home: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "uplink_spark.jobs.bronze", "--once", "--master", master]
    ran = subprocess.run(
        [*command, "--landing", str(landing.root), "--table", str(tmp_path / "bronze")],
        env=os.environ | spark_home | {"PYTHONPATH": PACKAGES} | ({"JAVA_HOME": java} if java else {}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith(sentence)
    assert "Traceback" not in ran.stderr
