"""The product under real systemd: started, killed, frozen, crashed, misconfigured, updated, put to safety."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.systemd.machine import TOP, Machine, build_slot, needs_systemd

pytestmark = [needs_systemd, pytest.mark.slow]
QUICK = "[Service]\nWatchdogSec=10\n"
HELPER = "/usr/lib/rocketbox/escalate.py"
CONFIG = '[listen]\nhost = "0.0.0.0"\n[watchdog]\nproof_limit_s = 5\n'


@pytest.fixture(scope="session")
def slot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_slot(tmp_path_factory.mktemp("slot") / "tree")


@pytest.fixture
def machine(tmp_path: Path, slot: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, slot, config=CONFIG, drop_in=QUICK)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def shared(module_path: Path, slot: Path) -> Iterator[Machine]:
    """One booted machine for the tests that leave it as they found it: a boot is half of what they take."""
    made = Machine(module_path, slot, config=CONFIG, drop_in=QUICK)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@contextmanager
def loop_mount(image: Path, target: Path) -> Iterator[None]:
    """Mount a small ext4 of its own on a folder."""
    image.touch()
    subprocess.run(["truncate", "-s", "2G", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop,noatime", image, target], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", target], check=True)


def answers(output: str) -> list[tuple[float, float, str]]:
    rows = [line.split() for line in output.splitlines()]
    return [(float(sent), float(back), said) for sent, back, said in rows]


def test_a_box_boots_is_ready_and_says_why_it_booted(shared: Machine) -> None:
    shared.wait_for("rocketbox.service")
    shared.wait_until(lambda: shared.health()["state"] == "ok", "health")
    assert shared.show("rocketbox.service", "StatusText").startswith("ok")
    assert [row["reason"] for row in shared.note("boots.jsonl")] == ["power"]
    assert shared.run("systemctl", "is-failed", "rocketbox*").stdout.strip() != "failed"
    owner = (shared.state / "store").stat()
    assert owner.st_uid == int(shared.run("id", "-u", "rocketbox").stdout)


def test_after_kill_nine_the_next_answer_comes_within_the_clients_patience_and_nobody_is_refused(
    shared: Machine,
) -> None:
    shared.wait_for("rocketbox.service")
    before = int(shared.show("rocketbox.service", "NRestarts"))
    client = shared.client("7", "30")
    assert client.stdout
    first = client.stdout.readline()
    shared.kill()
    rows = answers(first + client.stdout.read())
    assert client.wait(60) == 0
    assert {said for _, _, said in rows} <= {"ok", "closed", "ConnectionResetError"}
    assert sum(said != "ok" for _, _, said in rows) <= 1  # the one that was being answered
    assert rows[-1][2] == "ok"
    print(f"longest wait over kill -9: {max(back - sent for sent, back, said in rows):.2f} s")
    assert int(shared.show("rocketbox.service", "NRestarts")) == before + 1
    end = shared.note("exits.jsonl")[-1]
    assert (end["result"], end["status"]) == ("signal", "KILL")


def test_a_frozen_process_is_aborted_by_the_watchdog_and_restarted(shared: Machine) -> None:
    shared.wait_for("rocketbox.service")
    before = shared.main_pid()
    shared.kill("STOP")
    shared.wait_until(lambda: shared.main_pid() not in (0, before), "a new process", 60)
    assert shared.note("exits.jsonl")[-1]["result"] == "watchdog"


def test_five_crashes_escalate_once_reboot_and_the_next_boot_knows_why(machine: Machine) -> None:
    machine.wait_for("rocketbox.service")
    for count in range(1, 6):
        machine.wait_until(lambda: machine.main_pid() > 0, "a process", 60)
        time.sleep(0.3)
        machine.kill()
        if count < 5:
            machine.wait_until(lambda n=count: machine.show("rocketbox.service", "NRestarts") == str(n), "restart", 60)
    machine.wait_reboot()
    machine.wait_for("rocketbox.service")
    assert [row["kind"] for row in machine.note("escalations.jsonl")] == ["reboot"]
    assert [row["reason"] for row in machine.note("boots.jsonl")] == ["power", "escalated"]


def test_a_wrong_configuration_is_replaced_by_the_last_good_one(shared: Machine) -> None:
    shared.wait_for("rocketbox.service")
    file = shared.etc / "rocketbox.toml"
    (shared.etc / "rocketbox.toml.good").write_text(CONFIG)
    file.write_text("[store]\nsegment_mb = 7\n")
    shared.run("systemctl", "--no-block", "restart", "rocketbox.service")
    shared.wait_until(lambda: file.read_text() == CONFIG, "the good configuration", 60)
    shared.wait_for("rocketbox.service")
    assert "segment_mb" in (shared.etc / "rocketbox.toml.rejected").read_text()
    assert shared.note("escalations.jsonl")[-1]["kind"] == "restore_config"


def test_without_a_good_configuration_the_box_is_safe_until_told_to_leave(shared: Machine) -> None:
    shared.wait_for("rocketbox.service")
    file = shared.etc / "rocketbox.toml"
    (shared.etc / "rocketbox.toml.good").unlink(missing_ok=True)
    file.write_text("nonsense = \n")
    shared.run("systemctl", "--no-block", "restart", "rocketbox.service")
    shared.wait_for("rocketbox-safe.target", seconds=60)
    shared.wait_for("rocketbox-broker.socket", "inactive")
    assert shared.health()["state"] == "safe"
    output, _ = shared.client("0.5", "2").communicate(timeout=60)
    assert {said for _, _, said in answers(output)} == {"ConnectionRefusedError"}
    assert shared.run("systemctl", "is-active", "rocketbox-safe-retry.timer").stdout.strip() == "active"
    file.write_text(CONFIG)
    shared.run("/usr/bin/python3", "-I", HELPER, "leave")
    shared.wait_for("rocketbox.service")
    shared.wait_until(lambda: shared.health()["state"] == "ok", "health")


def put_on_trial(machine: Machine, slot: Path, version: str, spoil: str) -> None:
    import shutil

    target = machine.opt / "slots/b"
    shutil.copytree(slot, target, symlinks=True)
    if spoil:
        (commands,) = target.glob("lib/python3*/site-packages/appliance/commands/box")
        (commands / "serve.py").write_text(spoil)  # counts instead of the byte code beside it
    state = json.loads((machine.opt / "slots/state.json").read_text())
    state |= {"trial": "b", "tries": 2, "versions": {"a": "1.0.0", "b": version}}
    (machine.opt / "slots/state.json").write_text(json.dumps(state))


def test_a_good_version_on_trial_is_committed_after_its_self_test(machine: Machine, slot: Path) -> None:
    machine.wait_for("rocketbox-commit.service")
    put_on_trial(machine, slot, "1.1.0", "")
    machine.run("systemctl", "--no-block", "reboot")
    machine.wait_reboot()
    began = time.monotonic()
    machine.wait_for("rocketbox-commit.service", seconds=90)
    print(f"committed {time.monotonic() - began:.1f} s after the boot")
    state = json.loads((machine.opt / "slots/state.json").read_text())
    assert (state["active"], state["trial"], state["committed"]) == ("b", None, ["1.0.0", "1.1.0"])
    machine.wait_until(lambda: machine.health().get("slot") == "b", "health of slot b")
    machine.wait_until(lambda: machine.health().get("committed") is True, "committed in the health file", 60)
    assert machine.note("boots.jsonl")[-1]["reason"] == "planned"


def test_a_version_that_crashes_is_rolled_back_and_remembered(machine: Machine, slot: Path) -> None:
    machine.wait_for("rocketbox-commit.service")
    put_on_trial(machine, slot, "1.1.0", "raise SystemExit('broken on purpose')\n")
    machine.run("systemctl", "--no-block", "reboot")
    began = time.monotonic()
    machine.wait_reboot()  # into the new version, which ends five times
    machine.wait_reboot()
    machine.wait_for("rocketbox.service", seconds=60)
    print(f"rolled back {time.monotonic() - began:.1f} s after the first reboot, {machine.boots} boots")
    state = json.loads((machine.opt / "slots/state.json").read_text())
    assert (state["active"], state["trial"], state["bad"]) == ("a", None, ["1.1.0"])
    assert state["rolled_back"]["version"] == "1.1.0"
    assert machine.health()["slot"] == "a"


def test_a_version_that_fails_its_self_test_loses_its_tries_and_the_old_one_is_back(
    machine: Machine, slot: Path
) -> None:
    machine.wait_for("rocketbox-commit.service")
    put_on_trial(machine, slot, "1.1.0", "")
    (commands,) = (machine.opt / "slots/b").glob("lib/python3*/site-packages/appliance/commands/box")
    source = (TOP / "appliance/commands/box/selftest.py").read_text()
    (commands / "selftest.py").write_text(source + "\n\ndef run(arguments: object) -> int:\n    return 7\n")
    machine.run("systemctl", "--no-block", "reboot")
    for _ in range(3):  # two tries and the way back
        machine.wait_reboot()
    machine.wait_for("rocketbox-commit.service", seconds=60)
    state = json.loads((machine.opt / "slots/state.json").read_text())
    assert (state["active"], state["trial"], state["bad"], machine.boots) == ("a", None, ["1.1.0"], 4)
    machine.wait_until(lambda: machine.health()["state"] == "ok", "health")


def test_a_data_disk_that_does_not_come_causes_one_reboot_and_then_rest(machine: Machine) -> None:
    machine.wait_for("rocketbox-commit.service")  # the self-test's message lies in the log
    for _ in range(4):  # mount failed: restart, reboot, then no reboot any more
        machine.run("env", "MONITOR_SERVICE_RESULT=success", "/usr/bin/python3", "-I", HELPER, "run")
        kinds = [row["kind"] for row in machine.note("escalations.jsonl")]
        if kinds[-1] == "reboot":
            machine.wait_reboot()
            machine.wait_for("rocketbox.service")
        if kinds[-1] == "read_only":
            machine.run("systemctl", "restart", "rocketbox.service")
            machine.wait_until(lambda: machine.health()["state"] == "read_only", "read-only service")
    assert kinds == ["restart", "reboot", "read_only", "safe"]


def test_a_stalled_disk_is_not_fed_and_the_product_comes_back_when_it_answers(tmp_path: Path, slot: Path) -> None:
    machine = Machine(tmp_path, slot, config=CONFIG, drop_in=QUICK)
    with loop_mount(tmp_path / "disk", machine.state):
        machine.start()
        try:
            machine.wait_for("rocketbox-commit.service")
            before, began = machine.main_pid(), time.monotonic()
            subprocess.run(["fsfreeze", "-f", machine.state], check=True)  # every write and sync waits
            try:
                machine.wait_until(lambda: machine.health()["state"] == "failing", "starving", 60)
                starved = time.monotonic() - began
                machine.wait_until(lambda: "Watchdog timeout" in machine.journal("rocketbox.service"), "abort", 40)
                print(f"starving after {starved:.1f} s, aborted after {time.monotonic() - began:.1f} s")
            finally:
                subprocess.run(["fsfreeze", "-u", machine.state], check=True)
            machine.wait_until(lambda: machine.main_pid() not in (0, before), "a new process", 40)
            machine.wait_until(lambda: machine.health()["state"] == "ok", "health", 40)
            assert machine.note("exits.jsonl")[0]["result"] == "watchdog"
        finally:
            machine.stop()


def test_a_running_box_is_provisioned_updated_and_proves_it_without_a_reboot(tmp_path: Path, slot: Path) -> None:
    work = tmp_path / "bundle"
    words = [sys.executable, "-m", "provisioning.packaging.make_bundle", str(work), "--version", "1.1.0", "--quick"]
    subprocess.run(words, cwd=TOP, check=True, capture_output=True)
    machine = Machine(tmp_path / "box", slot, config=CONFIG, drop_in=QUICK)
    (tmp_path / "box/usr/lib/rocketbox/keys/test.pem").write_bytes((work / "test.pem").read_bytes())
    (tmp_path / "wanted.toml").write_text(CONFIG)
    try:
        machine.start()
        machine.wait_for("rocketbox-commit.service")
        machine.run("sh", "-c", "echo RBX-0007 > /var/lib/rocketbox-factory/serial")
        python = "/opt/appliance/bin/python"
        machine.run(
            "systemd-run",
            "--unit=line",
            "--property=UMask=0077",
            python,
            "-I",
            "-m",
            "appliance",
            "device",
            "--listen",
            "7777",
        )
        machine.wait_until(lambda: "ready port=" in machine.journal("line.service"), "the serial line's stand-in")
        bench = [sys.executable, "-m", "appliance", "provision", "--port", "socket://127.0.0.1:7777", "--yes"]
        bench += ["--name", "press-007", "--config", str(tmp_path / "wanted.toml"), "--receipts", str(tmp_path)]
        bench += ["--bundle", str(work / "rocketbox-1.1.0.rbx")]
        began = time.monotonic()
        done = machine.outside(*bench, home=tmp_path)
        print(f"provisioned and updated in {time.monotonic() - began:.1f} s")
        assert done.returncode == 0, done.stdout + done.stderr + machine.journal()
        assert "Done      RBX-0007 runs 1.1.0 in slot b" in done.stdout
        state = json.loads((machine.opt / "slots/state.json").read_text())
        assert (state["active"], state["trial"]) == ("b", None)
        assert machine.health()["version"] == "1.1.0"
        assert machine.boots == 1
        assert 'name = "press-007"' in (machine.etc / "rocketbox.toml").read_text()
    finally:
        machine.stop()
