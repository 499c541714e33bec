"""A SPARK_HOME for tests: Spark of the wheel, with JVMs and Python processes that cost less to start."""

import os
import tempfile
from pathlib import Path

import pyspark

# A test runs for seconds: the second compiler and a parallel collector cost more than they give.
JAVA_OPTIONS = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={tempfile.gettempdir()}"
WHEEL = Path(pyspark.__file__).parent


def make_spark_home(folder: Path) -> dict[str, str]:
    """Write Spark's settings for tests into folder and return the environment that selects them and the wheel's Spark.

    What its Python processes import lies compiled in the wheel's zip files (`make compiled`).
    """
    settings = folder / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(
        f"spark.driver.extraJavaOptions {JAVA_OPTIONS}\nspark.executor.extraJavaOptions {JAVA_OPTIONS}\n"
    )
    return {
        "SPARK_HOME": str(WHEEL),
        "SPARK_CONF_DIR": str(settings),
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS,
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
    }
