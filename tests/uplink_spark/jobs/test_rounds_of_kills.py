"""Rounds of kill -9 on a cluster of two workers, the table in a folder or in a bucket: each acknowledged row once.

KILL_ROUNDS=n: rounds (50); KILL_SEED=n: the seed that a failed run has printed.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from tests.uplink_spark.jobs.test_cluster import Cluster, bronze_on, cluster_of
from tests.uplink_spark.object_server import KEY, SECRET, make_bucket, running_s3, url_of
from uplink_spark.jobs.bronze import BronzeConfig
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.testing import Fleet, in_table

pytestmark = pytest.mark.soak
ROUNDS = int(os.environ.get("KILL_ROUNDS", "50"))


@pytest.fixture(params=["folder", "bucket"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "folder":
            yield str(tmp_path / "bronze")
            return
        pytest.importorskip("moto.server", reason="moto is missing: pip install 'moto[s3]' boto3")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        address = stack.enter_context(running_s3(tmp_path))
        make_bucket(address, "lake")
        yield url_of(address, "lake", "bronze")


class Rounds:
    """Runs of bronze, two at a time now and then, each with one kill."""

    def __init__(self, cluster: Cluster, config: BronzeConfig, folder: Path, dice: random.Random) -> None:
        self._cluster, self._config, self._folder, self._dice = cluster, config, folder, dice

    def run(self) -> str:
        """One round; return what was killed."""
        victim = self._dice.choice(("driver", "executor", "python worker", "two drivers", "checkpoint"))
        jobs = [bronze_on(self._cluster, self._config, self._folder) for _ in range(1 + (victim == "two drivers"))]
        until = time.monotonic() + self._dice.uniform(0, 40)
        while time.monotonic() < until and any(job.poll() is None for job in jobs):
            if victim in ("executor", "python worker") and self._kill(victim):
                break
            time.sleep(0.05)
        if victim in ("driver", "two drivers"):
            _kill_tree(self._dice.choice(jobs))
        for job in jobs:
            job.communicate(timeout=900)
        if victim == "checkpoint":
            shutil.rmtree(self._config.checkpoint, ignore_errors=True)
        return victim

    def _kill(self, victim: str) -> bool:
        executors = self._cluster.executors()
        with suppress(psutil.NoSuchProcess):
            workers = [child for executor in executors for child in executor.children(recursive=True)]
            if workers:
                self._dice.choice(workers if victim == "python worker" else executors).send_signal(signal.SIGKILL)
                return True
        return False


def _kill_tree(job: subprocess.Popen[str]) -> None:
    with suppress(psutil.NoSuchProcess):
        for process in (*psutil.Process(job.pid).children(recursive=True), psutil.Process(job.pid)):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_each_row_is_in_the_table_once_whatever_is_killed(
    tmp_path: Path, fleet: Fleet, table: str, spark_home: dict[str, str]
) -> None:
    seed = int(os.environ.get("KILL_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}, {ROUNDS} rounds")
    dice = random.Random(seed)
    config = BronzeConfig(str(fleet.landing.root), table, str(tmp_path / "checkpoint"))
    with cluster_of(tmp_path, 2, spark_home) as cluster:
        cluster.wait_for_workers()
        rounds = Rounds(cluster, config, tmp_path, dice)
        for number in range(ROUNDS):
            for _ in range(dice.randint(1, 6)):
                fleet.land(f"box-{dice.randrange(4)}", dice.randint(1, 200))
            victim, found = rounds.run(), in_table(table)
            assert not found - fleet.expected, f"seed {seed} round {number}: rows twice after {victim} was killed"
            print(f"round {number}: {victim}, {sum(found.values())} of {sum(fleet.expected.values())} rows", flush=True)
        job = bronze_on(cluster, config, tmp_path)
        _, err = job.communicate(timeout=900)
        assert job.returncode == 0, err[-3000:]
    assert in_table(table) == fleet.expected, f"seed {seed}"
    assert sum(Table(table).snapshot().end.values()) > 0
