"""SIGKILL of box and gateway at each named step and at random: what landed is the durable log, each byte once."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.box import until
from tests.uplink_spark.killing import COUNT, TOP, Site, killed, said, wait_done
from uplink_spark.testing import landed_entries, landed_log


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["B2:3", "B3:2", "B4:2", "B5"])
def test_a_box_killed_at_a_step_goes_on_exactly(site: Site, step: str) -> None:
    site.gateway()
    assert killed(site.box(step))
    wait_done(site.box())
    site.check()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["G1:3", "G2:2", "G3:2", "G4:2", "G5:2"])
def test_a_gateway_killed_at_a_step_goes_on_exactly(site: Site, step: str) -> None:
    gateway = site.gateway(step)
    box = site.box()
    assert killed(gateway)
    site.gateway()
    wait_done(box)
    site.check()
    packs = {str(path) for path in (site.landing / "pack").glob("*/*/*")}
    assert all(path.endswith(".pack") for path in packs)


def kill_before_a_sync(site: Site, number: int) -> None:
    site.gateway()
    assert killed(site.box(kill_at=f"sync:{number}"))
    wait_done(site.box())
    assert len(site.epochs()) == 1
    site.check()


@pytest.mark.slow
def test_b1_a_record_written_but_not_synced_costs_nothing(site: Site) -> None:
    kill_before_a_sync(site, 40)


def lost_and_landed(site: Site, count: int) -> None:
    """Declared losses and data together are the log, no byte in both, and the gaps' records are the missing ones."""
    entries = sorted((e for e in landed_entries(site.landing, "box-17")), key=lambda e: e.start)
    assert entries[0].start == 0
    assert all(left.end == right.start for left, right in itertools.pairwise(entries)), "a hole, or twice"
    gaps = [entry.gap or {} for entry in entries if entry.kind == "gap"]
    assert {(gap["class"], gap["reason"]) for gap in gaps} == {("missing", "quota_bytes")}
    records = landed_log(site.landing, "box-17")
    assert sum(gap["records"] for gap in gaps) + len(records) == count
    site.compare(records)


def losing_box(site: Site, stop_at: str = "", lag: int = 0) -> subprocess.Popen[str]:
    """A box with 16 MB in four files, of which a quota of 8 MiB keeps two."""
    return site.box(stop_at, count=4000, bytes=4096, lag=lag, segment=5 << 20)


def kill_while_letting_go(site: Site, step: str) -> None:
    assert killed(losing_box(site, step, lag=8 << 20))
    left = sorted(path.name for path in (site.store / "commitlog").iterdir() if path.name.isdigit())
    assert (left[0] == f"{0:020d}") == (step == "B6")  # declared, not unlinked; unlinked, not sent
    site.gateway()
    wait_done(losing_box(site))
    lost_and_landed(site, 4000)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["B6", "B7"])
def test_a_box_killed_while_it_lets_go_of_a_file_declares_that_loss_once(site: Site, step: str) -> None:
    kill_while_letting_go(site, step)


def kill_at_a_new_epoch(site: Site) -> None:
    site.gateway()
    wait_done(site.box(count=1000))
    shutil.copytree(site.store, site.folder / "image")
    wait_done(site.box(count=2000))
    shutil.rmtree(site.store)
    (site.folder / "image").rename(site.store)
    assert killed(site.box("B8", count=1500, mark="9"))
    assert len(site.epochs()) == 1
    wait_done(site.box(count=1500, mark="9"))
    old, new = site.epochs()
    entries = landed_entries(site.landing, "box-17")
    fork = min(entry.start for entry in entries if entry.epoch == new)
    assert max(entry.end for entry in entries if entry.epoch == old) > fork  # they were real: they stay
    assert sum(entry.records for entry in entries if entry.epoch == old) == 2000
    assert sum(entry.records for entry in entries if entry.epoch == new) == 500


@pytest.mark.slow
def test_b8_a_new_epoch_that_nobody_heard_of_is_announced_at_the_next_connect(site: Site) -> None:
    kill_at_a_new_epoch(site)


def kill_behind_a_rename(site: Site, number: int) -> None:
    site.gateway()
    wait_done(site.box(count=500))
    assert killed(site.box(kill_at=f"rename:{number}", count=800))
    wait_done(site.box(count=1000))
    assert len(site.epochs()) == 1
    site.check(1000)


@pytest.mark.slow
def test_b9_a_kill_right_after_the_identity_was_replaced_keeps_epoch_and_runs(site: Site) -> None:
    kill_behind_a_rename(site, 1)


def kill_at_a_state(site: Site, number: int, *, damaged: bool) -> None:
    gateway = site.gateway(f"G6:{number}", MANIFEST_ENTRIES="6")
    box = site.box()
    assert killed(gateway)
    states = sorted((site.landing / "manifest" / "0000").glob("*.state"))
    if damaged:
        states[-1].write_bytes(states[-1].read_bytes()[:-9])
    site.gateway(MANIFEST_ENTRIES="6")
    wait_done(box)
    site.check()
    assert len(sorted((site.landing / "manifest" / "0000").glob("*.log"))) > len(states)


def kill_at_a_step(site: Site, step: str, dice: random.Random) -> None:
    """Kill box or gateway at its step, once or, where it comes again and again, at one of the first times."""
    at = step if step == "B5" else f"{step}:{dice.randrange(1, 12)}"
    gateway = site.gateway(at if step[0] == "G" else "")
    box = site.box(at if step[0] == "B" else "")
    if killed(gateway if step[0] == "G" else box):
        box = site.box() if step[0] == "B" else box
        gateway = site.gateway() if step[0] == "G" else gateway
    wait_done(box)
    site.check()


@pytest.mark.soak
@pytest.mark.parametrize(
    "step", [*(f"B{number}" for number in range(1, 10)), *(f"G{number}" for number in range(1, 7))]
)
def test_each_step_may_be_the_last_again_and_again(tmp_path: Path, step: str) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        site = Site(tmp_path / str(number))
        try:
            match step:
                case "B1":
                    kill_before_a_sync(site, dice.randrange(2, 60))
                case "B6" | "B7":
                    kill_while_letting_go(site, step)
                case "B8":
                    kill_at_a_new_epoch(site)
                case "B9":
                    kill_behind_a_rename(site, 1)
                case "G6":
                    kill_at_a_state(site, dice.randrange(2, 4), damaged=dice.random() < 0.5)
                case _:
                    kill_at_a_step(site, step, dice)
        finally:
            site.end()


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_g6_a_state_that_was_not_written_or_half_costs_only_a_longer_start(site: Site, damaged: bool) -> None:
    kill_at_a_state(site, 3, damaged=damaged)


@pytest.mark.slow
def test_a_sync_that_stalls_gives_no_receipt_until_it_is_over(site: Site) -> None:
    over = site.folder / "over"
    gateway = site.gateway(SLOW_SYNC=f"3:{over}")
    box = site.box()
    assert said(gateway) == "stalled"
    during = landed_log(site.landing, "box-17")
    newest, last = site.store / "commitlog", f"{COUNT - 1:08d}".encode() * 60
    until(
        lambda: any(last in each.read_bytes() for each in newest.iterdir()), seconds=60, what="the stall held sends up"
    )
    assert landed_log(site.landing, "box-17") == during  # nothing became visible
    over.touch()
    wait_done(box)
    site.check()


def kill_at_random(site: Site, seed: int, kills: int) -> None:
    print(f"seed {seed}")
    dice = random.Random(seed)
    gateway, box = site.gateway(), site.box()
    for _ in range(kills):
        time.sleep(dice.uniform(0.2, 0.9))
        if dice.random() < 0.5:
            gateway.kill()
            gateway.wait()
            gateway = site.gateway()
        elif box.poll() is None:
            box.kill()
            box.wait()
            box = site.box()
    wait_done(box)
    site.check()


@pytest.mark.slow
def test_both_ends_killed_at_random_lose_and_double_nothing(site: Site) -> None:
    kill_at_random(site, random.randrange(1 << 30), 4)


@pytest.mark.soak
@pytest.mark.parametrize("round_number", range(20))
def test_both_ends_killed_at_random_again_and_again(site: Site, round_number: int) -> None:
    kill_at_random(site, random.randrange(1 << 30) + round_number, 15)


@pytest.mark.slow
def test_the_gateway_leaves_with_0_on_sigterm(site: Site) -> None:
    gateway = site.gateway()
    gateway.terminate()
    assert gateway.wait(60) == 0


@pytest.mark.slow
def test_a_taken_port_is_one_sentence_and_exit_code_2(site: Site) -> None:
    site.gateway()
    where = ["--landing", str(site.folder / "other"), "--listen", f"127.0.0.1:{site.port}"]
    second = subprocess.run(
        [sys.executable, "-m", "uplink_spark", "gateway", *where], capture_output=True, text=True, cwd=TOP, check=False
    )
    assert second.returncode == 2
    assert second.stderr.strip().count("\n") == 0
    assert "is taken by another program" in second.stderr
