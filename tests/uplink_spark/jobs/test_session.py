import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from uplink_spark.errors import ConfigError
from uplink_spark.jobs.session import PACKAGES, check_master
from uplink_spark.testing import MadeLanding

pytestmark = pytest.mark.slow


def test_a_session_adds_its_java_options_to_those_of_spark_defaults(spark: Any) -> None:
    java = spark.sparkContext._jvm.java.lang
    given = set(java.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert {"-Darrow.enable_unsafe_memory_access=true", "-XX:TieredStopAtLevel=1"} <= given


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_a_master_that_is_none_is_told_and_of_several_one_is_enough() -> None:
    port = closed_port()
    with pytest.raises(ConfigError, match=rf"no Spark master at spark://127.0.0.1:{port},a..b:1 \(127.0.0.1:{port}: "):
        check_master(f"spark://127.0.0.1:{port},a..b:1", wait_s=0)
    for wrong in ("localhost", "localhost:0", "", "h:70777", "[::1]", "a,b:1"):
        with pytest.raises(ConfigError, match="is not HOST:PORT; write spark://HOST:PORT"):
            check_master(f"spark://{wrong}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_master(f"spark://127.0.0.1:{port},127.0.0.1:{server.getsockname()[1]}")
        check_master(f"spark://localhost:{server.getsockname()[1]}")


def test_a_master_that_starts_beside_the_job_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    port, listening = closed_port(), threading.Event()

    def listen() -> None:
        while "waiting 60 s for it" not in "".join(told):
            told.append(capsys.readouterr().err)
            time.sleep(0.01)
        with socket.create_server(("127.0.0.1", port)) as server:
            server.accept()[0].close()
        listening.set()

    told: list[str] = []
    thread = threading.Thread(target=listen)
    thread.start()
    check_master(f"spark://127.0.0.1:{port}", wait_s=60)
    thread.join()
    assert listening.is_set()


@pytest.mark.parametrize(
    ("master", "java", "sentence"),
    [
        ("local[1]", "nowhere", "bronze: no Java at nowhere/bin/java: Spark needs Java 17 or newer"),
        ("sprk://x", None, "bronze: Spark does not start with master sprk://x and "),
        ("spark://127.0.0.1:1", "nowhere", "bronze: no Spark master at spark://127.0.0.1:1 (127.0.0.1:1: Connection"),
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
