import json
import os
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pytest

from watchdog.boots import note_boot
from watchdog.escalate import Action, decide
from watchdog.helper import (
    UNITS,
    SystemPaths,
    carry_out,
    keep_config,
    leave_safe,
    load_exits,
    load_history,
    load_slots,
    main,
)
from watchdog.history import Diary
from watchdog.notes import read_lines
from watchdog.testing import box_root, reboot

KILLED = {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}
CONFIG = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "78"}
STOPPED = {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"}


class Systemctl:
    """Notes the commands instead of running them."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, command: Sequence[str]) -> None:
        self.ran.append(" ".join(command))


def verb(root: Path, *words: str, environ: dict[str, str] | None = None) -> int:
    return main([*words, "--root", str(root), "--dry-run"], environ or {})


def later(root: Path, seconds: float) -> None:
    uptime = root / "proc/uptime"
    uptime.write_text(f"{float(uptime.read_text().split()[0]) + seconds} 0\n")


def test_ends_are_noted_per_boot_and_wanted_stops_do_not_count(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    for environ in (KILLED, STOPPED, CONFIG):
        assert verb(root, "record", environ=environ) == 0
    reboot(root, "boot-2")
    verb(root, "record", environ=KILLED)
    box = SystemPaths(root, print)
    assert [one.status for one in load_exits(box)] == ["KILL"]
    reboot(root, "boot-1")
    assert [one.status for one in load_exits(box)] == ["KILL", "78"]


def test_five_kills_reboot_and_say_so_to_the_next_boot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = box_root(tmp_path)
    verb(root, "boot")
    for _ in range(5):
        verb(root, "record", environ=KILLED)
    verb(root, "run", environ={"MONITOR_SERVICE_RESULT": "signal", "MONITOR_EXIT_CODE": "killed"})
    assert "['systemctl', '--no-block', 'reboot']" in capsys.readouterr().out
    reboot(root, "boot-2")
    verb(root, "boot")
    rows = read_lines(root / "var/lib/rocketbox/watchdog/boots.jsonl")
    assert [row["reason"] for row in rows] == ["power", "escalated"]


def test_the_second_loop_switches_the_slot_and_the_third_ends_in_safe_mode(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    for number in range(3):
        reboot(root, f"boot-{number}", uptime_s=5)
        verb(root, "boot")
        reboot(root, f"boot-{number}", uptime_s=60)
        for _ in range(5):
            verb(root, "record", environ=KILLED)
        verb(root, "run", environ={"MONITOR_SERVICE_RESULT": "signal", "MONITOR_EXIT_CODE": "killed"})
        Diary(root / "var/lib/rocketbox/watchdog", root=root).heartbeat(boot=f"boot-{number}", uptime_s=60, state="ok")
    steps = read_lines(root / "var/lib/rocketbox/watchdog/escalations.jsonl")
    assert [row["kind"] for row in steps] == ["reboot", "switch_slot", "safe"]
    state = json.loads((root / "opt/slots/state.json").read_text())
    assert (state["active"], state["bad"], state["rolled_back"]["version"]) == ("b", ["1.4.0"], "1.4.0")
    assert (root / "run/rocketbox-safe").exists()


def test_a_wrong_configuration_is_replaced_once_and_kept_aside(tmp_path: Path) -> None:
    root, systemctl = box_root(tmp_path), Systemctl()
    config = root / "etc/rocketbox/rocketbox.toml"
    config.with_name("rocketbox.toml.good").write_text("good = true\n")
    verb(root, "record", environ=CONFIG)
    box = SystemPaths(root, systemctl)
    carry_out(box, decide(load_history(box), load_slots(box), load_exits(box)))
    assert config.read_text() == "good = true\n"
    assert config.with_name("rocketbox.toml.rejected").read_text().startswith("[box]")
    assert systemctl.ran[-1].startswith("systemctl --no-block start rocketbox-broker.socket")
    assert decide(load_history(box), load_slots(box), load_exits(box)).kind == "safe"  # the good one fails as well


def test_a_restoration_that_fails_leaves_the_configuration_that_was_and_ends_in_safe_mode(tmp_path: Path) -> None:
    root, systemctl = box_root(tmp_path), Systemctl()
    config = root / "etc/rocketbox/rocketbox.toml"
    before = config.read_text()
    config.with_name("rocketbox.toml.good").write_text("good = true\n")
    config.with_name("rocketbox.toml.new").mkdir()  # as of a folder that takes no file
    carry_out(SystemPaths(root, systemctl), Action("restore_config", "config", "wrong"))
    assert config.read_text() == before
    assert "but that failed" in (root / "run/rocketbox-safe").read_text()
    assert systemctl.ran[-1].endswith("start rocketbox-safe.target rocketbox-safe-retry.timer")
    steps = read_lines(root / "var/lib/rocketbox/watchdog/escalations.jsonl")
    assert [(row["kind"], row["cause"]) for row in steps] == [("restore_config", "config"), ("safe", "config")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_configuration_for_the_products_group_stays_readable_to_it(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    config = root / "etc/rocketbox/rocketbox.toml"
    config.chmod(0o640)
    os.chown(config, 0, 12345)
    settled = json.dumps({"config_crc32": crc32(config.read_bytes())})
    (root / "var/lib/rocketbox/watchdog/settled.json").write_text(settled)
    assert keep_config(SystemPaths(root, Systemctl()))
    config.write_text("wrong")
    carry_out(SystemPaths(root, Systemctl()), Action("restore_config", "config", "wrong"))
    status = config.stat()
    assert (oct(status.st_mode & 0o777), status.st_uid, status.st_gid) == ("0o640", 0, 12345)


def test_only_the_bytes_that_ran_ten_healthy_minutes_become_the_good_configuration(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    box, config = SystemPaths(root, print), root / "etc/rocketbox/rocketbox.toml"
    Diary(box.folder, root=root).settle(boot="boot-1", config_crc32=crc32(config.read_bytes()))
    assert keep_config(box)
    config.write_text("edited since\n")
    assert not keep_config(box)
    assert config.with_name("rocketbox.toml.good").read_text().startswith("[box]")


@pytest.mark.parametrize("unreadable", ["rocketbox.toml", "rocketbox.toml.good"])
def test_a_configuration_that_the_disk_does_not_give_back_fails_no_step_which_would_reboot_each_time(
    tmp_path: Path, unreadable: str
) -> None:
    root = box_root(tmp_path)
    folder = root / "etc/rocketbox"
    (folder / "rocketbox.toml.good").write_text("good = true\n")
    (folder / unreadable).unlink()
    (folder / unreadable).mkdir()
    verb(root, "record", environ=CONFIG)
    assert verb(root, "run") == 0
    assert (root / "run/rocketbox-safe").exists()
    assert verb(root, "keep-config") == 1


def test_safe_mode_closes_the_ports_tells_why_and_is_left_on_request(tmp_path: Path) -> None:
    root, systemctl = box_root(tmp_path), Systemctl()
    note_boot(root, now_s=0, trusted=False)
    box = SystemPaths(root, systemctl)
    carry_out(box, Action("safe", "asked", "maintenance"))
    health = json.loads((root / "run/rocketbox/health.json").read_text())
    assert (health["state"], health["reasons"][0]["text"], health["boot"]) == ("safe", "maintenance", 1)
    assert f"systemctl --no-block stop {' '.join(UNITS)}" in systemctl.ran
    assert leave_safe(box)
    left = json.loads((root / "run/rocketbox/health.json").read_text())
    assert (left["state"], left["reasons"]) == ("starting", []), "until the box writes its own"
    assert not box.marker.exists()
    assert systemctl.ran[-1] == f"systemctl --no-block start {' '.join(UNITS)}"
    assert not leave_safe(box)


def test_a_step_that_cannot_be_written_down_never_reboots(tmp_path: Path) -> None:
    root, systemctl = box_root(tmp_path), Systemctl()
    (root / "var/lib/rocketbox/watchdog").rmdir()
    (root / "var/lib/rocketbox/watchdog").write_text("in the way")
    carry_out(SystemPaths(root, systemctl), Action("reboot", "storage", "the disk fails"))
    assert not any("reboot" in command for command in systemctl.ran)
    assert (root / "run/rocketbox-safe").exists()


def test_three_panics_put_the_marker_before_the_product_starts(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    for number in range(4):
        reboot(root, f"boot-{number}")
        (root / "sys/fs/pstore").mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/pstore/dmesg").write_text("Oops")
        verb(root, "boot")
        assert (root / "run/rocketbox-safe").exists() == (number == 3)  # the first has no boot before it


def test_a_start_that_never_began_is_a_storage_fault(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    verb(root, "run", environ={"MONITOR_SERVICE_RESULT": "success", "MONITOR_EXIT_CODE": ""})
    verb(root, "run", environ={"MONITOR_SERVICE_RESULT": "success", "MONITOR_EXIT_CODE": ""})
    steps = read_lines(root / "var/lib/rocketbox/watchdog/escalations.jsonl")
    assert [(row["kind"], row["cause"]) for row in steps] == [("restart", "storage"), ("reboot", "storage")]


def test_a_port_that_another_program_has_ends_in_safe_mode_and_never_in_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, program = box_root(tmp_path / "box"), tmp_path / "systemctl"
    program.write_text(
        "#!/bin/sh\ncase $3 in *namesrv*) echo 'Listen=[::]:9876 (Stream)'; echo Result=resources ;;\n"
        "*) echo 'Listen=[::]:10911 (Stream)'; echo Result=success ;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    verb(root, "run", environ={"MONITOR_SERVICE_RESULT": "success", "MONITOR_EXIT_CODE": "exited"})
    (step,) = read_lines(root / "var/lib/rocketbox/watchdog/escalations.jsonl")
    assert (step["kind"], step["text"]) == ("safe", "port 9876 is taken by another program")
    (reason,) = json.loads((root / "run/rocketbox/health.json").read_text())["reasons"]
    assert reason["next"] == "stop what `rocketbox doctor` names, then `rocketbox safe leave`"


def test_a_start_that_refuses_its_configuration_names_where_the_reason_is(tmp_path: Path) -> None:
    root = box_root(tmp_path / "box")
    verb(root, "record", environ=CONFIG)
    verb(root, "run")
    (reason,) = json.loads((root / "run/rocketbox/health.json").read_text())["reasons"]
    for place in ("`rocketbox config check`", "`journalctl -u rocketbox`", "`rocketbox safe leave`"):
        assert place in reason["next"]


@pytest.mark.parametrize(("later_s", "cause"), [(0, "config"), (40, "config"), (60, "storage")])
def test_a_client_that_starts_the_product_again_at_once_does_not_hide_why_it_ended(
    tmp_path: Path, later_s: int, cause: str
) -> None:
    root = box_root(tmp_path)
    verb(root, "record", environ=CONFIG)
    later(root, later_s)
    verb(root, "run", environ={"MONITOR_SERVICE_RESULT": "success", "MONITOR_EXIT_CODE": ""})
    (row,) = read_lines(root / "var/lib/rocketbox/watchdog/escalations.jsonl")
    assert row["cause"] == cause


def test_a_mount_that_is_missing_soon_after_an_answered_end_is_a_storage_fault(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    verb(root, "record", environ=CONFIG)
    for _ in range(2):  # the end is answered; what is started then finds no data disk
        later(root, 1)
        verb(root, "run", environ={"MONITOR_SERVICE_RESULT": "success", "MONITOR_EXIT_CODE": ""})
    rows = read_lines(root / "var/lib/rocketbox/watchdog/escalations.jsonl")
    assert [row["cause"] for row in rows] == ["config", "storage"]


def test_a_stop_that_took_too_long_is_no_storage_fault(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    verb(root, "boot")
    verb(root, "run", environ={"MONITOR_SERVICE_RESULT": "timeout", "MONITOR_EXIT_CODE": ""})
    (row,) = read_lines(root / "var/lib/rocketbox/watchdog/escalations.jsonl")
    assert (row["kind"], row["cause"]) == ("restart", "ended")


def test_an_image_on_trial_that_does_not_stay_up_is_given_up_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = box_root(tmp_path)
    verb(root, "boot")
    (root / "run/rocketbox-image-trial").write_text("1.5.0\n")
    for _ in range(5):
        verb(root, "record", environ=KILLED)
    verb(root, "run", environ={"MONITOR_SERVICE_RESULT": "signal", "MONITOR_EXIT_CODE": "killed"})
    said = capsys.readouterr().out
    assert "'/usr/lib/rocketbox/image.py', 'give-up'" in said
    assert said.index("give-up") < said.index("'reboot'")


def test_an_image_on_trial_that_fails_its_self_test_is_booted_again_and_loses_a_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = box_root(tmp_path)
    verb(root, "boot")
    verb(root, "trial-failed")
    assert "reboot" not in capsys.readouterr().out
    (root / "run/rocketbox-image-trial").write_text("1.5.0\n")
    verb(root, "trial-failed")
    said = capsys.readouterr().out
    assert "'reboot'" in said
    assert "give-up" not in said


def test_the_helper_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    import subprocess
    import sys

    root = Path(__file__).parents[2]
    script = "import sys; sys.path.insert(0, sys.argv[1]); import watchdog.helper; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(root)], capture_output=True, text=True, check=True
    )
    assert not {"trio", "psutil"} & set(done.stdout.split())


def test_an_unknown_verb_is_a_usage_error(tmp_path: Path) -> None:
    assert verb(box_root(tmp_path), "dance") == 2
