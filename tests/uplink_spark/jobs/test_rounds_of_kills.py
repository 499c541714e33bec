"""Rounds of kill -9 from the box to the table, in folders or in buckets: each acknowledged message is a row, once.

A box, a gateway, a cluster of two workers, bronze; each round kills something of the box's side while it ships, and
something of Spark's side while bronze reads.

KILL_ROUNDS=n: rounds (25, two kills each); KILL_S=n: no new round after so many seconds; KILL_SEED=n: the seed that a
failed run has printed.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.uplink_spark.jobs.test_cluster import Cluster, bronze_on, cluster_of
from tests.uplink_spark.killing import Site, wait_done
from tests.uplink_spark.object_server import KEY, SECRET, make_bucket, running_google, running_s3, url_of
from uplink_spark.jobs.bronze import BronzeConfig
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.testing import in_table

pytestmark = pytest.mark.soak
ROUNDS, MOST_S = int(os.environ.get("KILL_ROUNDS", "25")), float(os.environ.get("KILL_S", "inf"))
SHIPPING = ("box", "gateway", "box", "gateway", "nothing")
READING = ("driver", "executor", "python worker", "spark worker", "two drivers", "checkpoint")
WAIT_S = 900


class Places(NamedTuple):
    zone: str
    table: str


@pytest.fixture(params=["folder", "bucket", "google"])
def places(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    with ExitStack() as stack:
        if request.param == "folder":
            yield Places(str(tmp_path / "landing"), str(tmp_path / "bronze"))
            return
        if request.param == "google":
            url = stack.enter_context(running_google(tmp_path, "lake"))
            yield Places(url.format("zone"), url.format("bronze"))
            return
        pytest.importorskip("moto.server", reason="moto's server is missing: make setup")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        address = stack.enter_context(running_s3(tmp_path))
        make_bucket(address, "lake")
        yield Places(url_of(address, "lake", "zone"), url_of(address, "lake", "bronze"))


class Shipping:
    """A box and a gateway, each killed now and then and started again."""

    def __init__(self, folder: Path, zone: str, dice: random.Random) -> None:
        self._site, self._dice, self.count = Site(folder, zone), dice, 0
        self._gateway = self._site.gateway()
        self._box: subprocess.Popen[str] | None = None

    def begin(self) -> str:
        """Let the box append and ship some messages, and kill one of the two meanwhile; return which."""
        self.count += self._dice.randint(1, 3000)
        victim, box = self._dice.choice(SHIPPING), self._site.box(count=self.count)
        time.sleep(self._dice.uniform(0, 4))
        if victim == "box":
            box.kill()
            box.wait()
            box = self._site.box(count=self.count)
        if victim == "gateway":
            self._gateway.kill()
            self._gateway.wait()
            self._gateway = self._site.gateway()
        self._box = box
        return victim

    def finish(self) -> None:
        """Return when the box has receipts for all of its messages."""
        if self._box is not None:
            wait_done(self._box, WAIT_S)

    def end(self) -> None:
        self._site.end()

    def expected(self) -> Counter[tuple[str, bytes]]:
        return Counter(("box-17", f"{number:08d}".encode() * 60) for number in range(self.count))


class Rounds:
    """Runs of bronze, two at a time now and then, each with one kill."""

    def __init__(self, cluster: Cluster, config: BronzeConfig, folder: Path, dice: random.Random) -> None:
        self._cluster, self._config, self._folder, self._dice = cluster, config, folder, dice

    def run(self, shipping: Shipping) -> str:
        """One round; return what was killed."""
        victim = self._dice.choice(READING)
        jobs = [bronze_on(self._cluster, self._config, self._folder) for _ in range(1 + (victim == "two drivers"))]
        shipped = shipping.begin()
        until = time.monotonic() + self._dice.uniform(0, 40)
        while time.monotonic() < until and any(job.poll() is None for job in jobs):
            if self._kill(victim):
                break
            time.sleep(0.05)
        if victim in ("driver", "two drivers"):
            _kill_tree(self._dice.choice(jobs))
        for job in jobs:
            _, err = job.communicate(timeout=WAIT_S)
            assert job.returncode == 0 or victim != "checkpoint", err[-3000:]  # nothing was killed on Spark's side
        shipping.finish()
        if victim == "checkpoint":
            shutil.rmtree(self._config.checkpoint, ignore_errors=True)
        return f"{shipped}, {victim}"

    def _kill(self, victim: str) -> bool:
        """Kill what runs tasks, once it does; return whether it was."""
        with suppress(psutil.NoSuchProcess):
            if victim == "spark worker" and self._cluster.kill_machine_at_work():
                self._cluster.add_worker()
                return True
            executors = self._cluster.executors() if victim in ("executor", "python worker") else []
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


def test_each_message_is_in_the_table_once_whatever_is_killed(
    tmp_path: Path, places: Places, spark_home: dict[str, str]
) -> None:
    seed = int(os.environ.get("KILL_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}, {ROUNDS} rounds")
    dice, until = random.Random(seed), time.monotonic() + MOST_S
    config = BronzeConfig(places.zone, places.table, str(tmp_path / "checkpoint"))
    shipping = Shipping(tmp_path, places.zone, dice)
    try:
        with cluster_of(tmp_path, 2, spark_home) as cluster:
            cluster.wait_for_workers()
            rounds = Rounds(cluster, config, tmp_path, dice)
            for number in range(ROUNDS):
                if time.monotonic() > until:
                    break
                killed, found = rounds.run(shipping), in_table(places.table)
                assert not found - shipping.expected(), f"seed {seed} round {number}: rows twice, killed: {killed}"
                print(f"round {number}: {killed}; {sum(found.values())} of {shipping.count} rows", flush=True)
            job = bronze_on(cluster, config, tmp_path)
            _, err = job.communicate(timeout=WAIT_S)
            assert job.returncode == 0, err[-3000:]
    finally:
        shipping.end()
    assert in_table(places.table) == shipping.expected(), f"seed {seed}"
    assert sum(Table(places.table).snapshot().end.values()) > 0
