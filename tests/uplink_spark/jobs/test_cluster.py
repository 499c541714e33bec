"""The bronze job on a real standalone cluster started from the pyspark wheel, with executors killed under it."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.ports import free_port
from uplink_spark.jobs import bronze
from uplink_spark.jobs.bronze import BronzeConfig
from uplink_spark.jobs.session import PACKAGES
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.testing import Fleet, in_table


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when something listens there."""
    until = time.monotonic() + 600
    while True:
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < until, log.read_text()[-2000:]
        time.sleep(0.1)


class Cluster:
    """One master, some workers of one core each."""

    def __init__(self, folder: Path, workers: int, environment: dict[str, str]) -> None:
        self._folder, self._workers, self._environment = folder, workers, os.environ | environment
        self._port, self._web = free_port(), free_port()
        self._children: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when the master listens: a worker that comes earlier tries again only after many seconds."""
        self._run("master.Master", "--port", str(self._port), "--webui-port", str(self._web))
        wait_for_port(self._port, self._children[0], self._folder / "cluster.log")
        for _ in range(self._workers):
            self.add_worker()

    def add_worker(self) -> None:
        work = str(self._folder / f"work{free_port()}")
        self._run("worker.Worker", "--webui-port", "0", "-c", "1", "-m", "1500m", "-d", work, self.master)

    def wait_for_workers(self) -> None:
        self._wait(lambda: self._alive() == self._workers)

    def _wait(self, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + 600
        while not ready():
            assert time.monotonic() < until, (self._folder / "cluster.log").read_text()[-2000:]
            time.sleep(0.1)

    def _run(self, what: str, *arguments: str) -> None:
        spark_class = Path(self._environment["SPARK_HOME"], "bin/spark-class")
        command = [str(spark_class), f"org.apache.spark.deploy.{what}", "--host", "127.0.0.1"]
        environment = self._environment | {"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m"}
        with (self._folder / "cluster.log").open("ab") as log:
            self._children.append(subprocess.Popen([*command, *arguments], env=environment, stdout=log, stderr=log))

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as reply:
                return int(json.load(reply)["aliveworkers"])
        except (OSError, ValueError):  # a master that starts answers every page with its front page
            return 0

    def executors(self) -> list[psutil.Process]:
        found = []
        for child in self._children[1:]:
            for process in psutil.Process(child.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # a zombie is one too: a worker's short-lived helper
                    if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                        found.append(process)
        return found

    def kill_machine_at_work(self) -> bool:
        """A machine that is gone while it runs a task: a worker and everything it had started."""
        for child in self._children[1:]:
            started = psutil.Process(child.pid).children(recursive=True)
            if any("pyspark.daemon" in " ".join(process.cmdline()) for process in started):
                for process in (psutil.Process(child.pid), *started):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                child.wait()
                self._children.remove(child)
                return True
        return False

    def stop(self) -> None:
        for child in reversed(self._children):
            for process in psutil.Process(child.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            child.kill()
            child.wait()


@contextmanager
def cluster_of(folder: Path, workers: int, environment: dict[str, str]) -> Iterator[Cluster]:
    cluster = Cluster(folder, workers, environment)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def bronze_on(cluster: Cluster, config: BronzeConfig, cwd: Path) -> subprocess.Popen[str]:
    """Started away from the checkout, so that executors find the packages by their environment alone."""
    command = [sys.executable, "-m", "uplink_spark.jobs.bronze", "--once", "--partition-mib", "1"]
    command += ["--landing", config.landing, "--table", config.table, "--checkpoint", config.checkpoint]
    environment = os.environ | {"PYTHONPATH": PACKAGES}
    return subprocess.Popen(
        [*command, "--master", cluster.master],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def submitted(cluster: Cluster, config: BronzeConfig, cwd: Path, given: Mapping[str, str]) -> subprocess.Popen[str]:
    """The job's file handed to spark-submit with settings, as docs/spark.md tells to."""
    command = [str(Path(os.environ["SPARK_HOME"], "bin/spark-submit")), "--master", cluster.master, "--name", "nightly"]
    command += [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    command += [bronze.__file__, "--once", "--partition-mib", "1", "--landing", config.landing]
    return subprocess.Popen(
        [*command, "--table", config.table, "--checkpoint", config.checkpoint],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_executors(cluster: Cluster, process: subprocess.Popen[str], dice: random.Random, times: int) -> int:
    """Kill an executor each time tasks have written something new; return how many were killed."""
    killed = 0
    until = time.monotonic() + 600
    while killed < times and process.poll() is None and time.monotonic() < until:
        with suppress(psutil.NoSuchProcess):  # it ended by itself since it was listed
            executors = cluster.executors()
            workers = [p for executor in executors for p in executor.children(recursive=True)]
            if workers:  # Python workers: a task is being run
                dice.choice(executors).send_signal(signal.SIGKILL)
                killed += 1
                time.sleep(dice.uniform(0.5, 2) if killed < times else 0)
        time.sleep(0.05)
    return killed


Start = Callable[[Cluster, BronzeConfig, Path], "subprocess.Popen[str]"]


def run_with_kills(
    cluster: Cluster, fleet: Fleet, config: BronzeConfig, cwd: Path, *, kills: int, start: Start = bronze_on
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for n in range(40):
        fleet.land(f"box-{n % 4}", 100)
    process = start(cluster, config, cwd)  # its JVM starts beside the workers'
    cluster.wait_for_workers()
    killed = kill_executors(cluster, process, dice, kills)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err[-3000:]
    assert killed
    assert f"rows={sum(fleet.expected.values())}" in out
    assert in_table(config.table) == fleet.expected
    assert Table(config.table).snapshot().end == {"0": 40}


@pytest.mark.soak
def test_rows_of_a_submitted_job_are_exact_when_an_executor_is_killed_and_its_settings_win(
    tmp_path: Path, fleet: Fleet, config: BronzeConfig, spark_home: dict[str, str]
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    given = {
        "spark.sql.shuffle.partitions": "3",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    with cluster_of(tmp_path, 1, spark_home) as cluster:
        run_with_kills(cluster, fleet, config, tmp_path, kills=1, start=partial(submitted, given=given))
    (log,) = events.iterdir()
    told = [json.loads(line) for line in log.read_text().splitlines()]
    (settings,) = (event["Spark Properties"] for event in told if event["Event"] == "SparkListenerEnvironmentUpdate")
    assert settings.items() >= given.items()  # not the job's own
    assert settings["spark.sql.python.filterPushdown.enabled"] == "true"


@pytest.mark.soak
def test_rows_are_exact_when_executors_of_two_workers_are_killed(
    tmp_path: Path, fleet: Fleet, config: BronzeConfig, spark_home: dict[str, str]
) -> None:
    with cluster_of(tmp_path, 2, spark_home) as cluster:
        run_with_kills(cluster, fleet, config, tmp_path, kills=4)


@pytest.mark.soak
def test_rows_are_exact_when_the_machine_of_a_worker_is_gone(
    tmp_path: Path, fleet: Fleet, config: BronzeConfig, spark_home: dict[str, str]
) -> None:
    for n in range(40):
        fleet.land(f"box-{n % 4}", 100)
    with cluster_of(tmp_path, 2, spark_home) as cluster:
        process = bronze_on(cluster, config, tmp_path)
        cluster.wait_for_workers()
        until, killed = time.monotonic() + 600, False
        while not killed:
            assert process.poll() is None
            assert time.monotonic() < until
            with suppress(psutil.NoSuchProcess):  # a short-lived helper
                killed = cluster.kill_machine_at_work()
            time.sleep(0.02)
        assert not Table(config.table).snapshot().end
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err[-3000:]
    assert f"rows={sum(fleet.expected.values())}" in out
    assert in_table(config.table) == fleet.expected
