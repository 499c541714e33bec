"""A SPARK_HOME for tests: Spark of the wheel, with JVMs and Python processes that cost less to start."""

import os
import tempfile
from pathlib import Path

import pyspark

# A test runs for seconds: the second compiler and a parallel collector cost more than they give.
JAVA_OPTIONS = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={tempfile.gettempdir()}"
WHEEL = Path(pyspark.__file__).parent


def make_spark_home(folder: Path) -> dict[str, str]:
    """Make links to the wheel's Spark in folder and return the environment that selects them.

    Spark lets its Python processes import pyspark from pyspark.zip, where nothing is compiled: a second of processor
    time each. Here that name is a folder with a link to the installed package.
    """
    home = folder / "spark"
    libraries = home / "python/lib"
    (libraries / "pyspark.zip").mkdir(parents=True)
    (libraries / "pyspark.zip/pyspark").symlink_to(WHEEL)
    for path in [*WHEEL.glob("python/lib/py4j-*.zip"), *(WHEEL / name for name in ("bin", "sbin", "jars", "conf"))]:
        link = libraries / path.name if path.suffix == ".zip" else home / path.name
        if path.exists():
            link.symlink_to(path)
    settings = folder / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(
        f"spark.driver.extraJavaOptions {JAVA_OPTIONS}\nspark.executor.extraJavaOptions {JAVA_OPTIONS}\n"
    )
    return {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(settings),
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS,
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
    }
