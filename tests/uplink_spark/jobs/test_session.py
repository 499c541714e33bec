from typing import Any

import pytest


@pytest.mark.slow
def test_a_session_adds_its_java_options_to_those_of_spark_defaults(spark: Any) -> None:
    java = spark.sparkContext._jvm.java.lang
    given = set(java.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert {"-Darrow.enable_unsafe_memory_access=true", "-XX:TieredStopAtLevel=1"} <= given
