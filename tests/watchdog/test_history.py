from pathlib import Path

import pytest

from tests.protection import protected
from watchdog.history import Diary, tired
from watchdog.notes import read_json, read_lines
from watchdog.testing import box_root, reboot


def diary(tmp_path: Path) -> tuple[Diary, Path]:
    root = box_root(tmp_path)
    folder = root / "var/lib/rocketbox/watchdog"
    return Diary(folder, root=root), folder


def test_a_run_without_a_boot_helper_notes_the_boot_itself(tmp_path: Path) -> None:
    notes, folder = diary(tmp_path)
    note = notes.begin(now_s=1, trusted=True)
    assert (note.number, note.boot, note.slot, note.version) == (1, "boot-1", "a", "1.4.0")
    assert read_lines(folder / "boots.jsonl")[0]["clock_trusted"] is True


def test_the_mark_of_a_planned_stop_ends_with_the_next_start_of_the_same_boot(tmp_path: Path) -> None:
    notes, folder = diary(tmp_path)
    notes.begin(now_s=1, trusted=False)
    notes.planned(boot="boot-1", reason="restart", who="systemd")
    notes.begin(now_s=2, trusted=False)
    assert not (folder / "planned").exists()


def test_a_mark_that_cannot_be_removed_keeps_no_box_from_starting(tmp_path: Path) -> None:
    notes, folder = diary(tmp_path)
    notes.begin(now_s=1, trusted=False)
    notes.planned(boot="boot-1", reason="restart", who="systemd")
    with protected(folder / "planned"):
        assert notes.begin(now_s=2, trusted=False).number == 1


def test_a_mark_of_the_escalation_is_not_overwritten_by_the_stop_it_causes(tmp_path: Path) -> None:
    notes, folder = diary(tmp_path)
    notes.planned(boot="boot-1", reason="loop", who="escalate")
    notes.planned(boot="boot-1", reason="SIGTERM", who="systemd")
    assert read_json(folder / "planned")["who"] == "escalate"


def test_the_first_healthy_second_and_settling_are_written_into_the_boots_line(tmp_path: Path) -> None:
    notes, folder = diary(tmp_path)
    notes.begin(now_s=1, trusted=False)
    notes.healthy(boot="boot-1", uptime_s=112.5, settled=False)
    notes.healthy(boot="boot-1", uptime_s=712.5, settled=True)
    (row,) = read_lines(folder / "boots.jsonl")
    assert (row["healthy_s"], row["settled"], row["uptime_s"]) == (12.5, True, 712.5)


def test_the_previous_exit_is_named_from_this_boot_or_by_the_reset_reason(tmp_path: Path) -> None:
    from watchdog.helper import main

    notes, folder = diary(tmp_path)
    assert notes.previous_exit() == "first"
    notes.begin(now_s=1, trusted=False)
    assert notes.previous_exit() == "power"
    root = str(folder.parents[3])
    main(["record", "--root", root], {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"})
    assert notes.previous_exit() == "signal KILL"
    main(["record", "--root", root], {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "78"})
    assert notes.previous_exit() == "exit 78"
    reboot(folder.parents[3], "boot-2")
    notes.begin(now_s=2, trusted=False)
    assert notes.previous_exit() == "power"


def test_ten_ends_within_the_hour_are_enough_unless_the_boot_has_settled() -> None:
    slow = [3600.0 - 350 * number for number in range(10)]
    assert tired(slow, 3600, settled=False)
    assert not tired(slow[1:], 3600, settled=False)
    assert not tired(slow, 3600, settled=True)
    assert not tired([5000.0 - 450 * number for number in range(10)], 5000, settled=False)


def test_ten_ends_in_this_boot_make_a_start_tired(tmp_path: Path) -> None:
    from watchdog.helper import main

    notes, folder = diary(tmp_path)
    for _ in range(10):
        assert not notes.tired(uptime_s=100, settled=False)
        main(
            ["record", "--root", str(folder.parents[3])],
            {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"},
        )
    assert notes.tired(uptime_s=100, settled=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["boots.jsonl", "exits.jsonl", "heartbeat", "planned", "escalations.jsonl"])
@pytest.mark.parametrize("damage", ["{}", '{"boot":"boot-1"}', '{"b0ot":"boot-1","number":[2]}', "[1]"])
def test_notes_that_are_damaged_keep_no_box_from_starting_and_the_helper_from_no_step(
    tmp_path: Path, name: str, damage: str
) -> None:
    from watchdog.helper import main

    notes, folder = diary(tmp_path)
    notes.begin(now_s=1, trusted=False)
    (folder / name).write_text(damage + "\n")
    (tmp_path / "opt/slots/state.json").write_text(damage)
    for boot in ("boot-1", "boot-2"):
        reboot(tmp_path, boot)
        assert notes.begin(now_s=2, trusted=False).boot == boot
        assert notes.previous_exit()
        assert not notes.tired(uptime_s=100, settled=False)
        notes.healthy(boot=boot, uptime_s=5, settled=False)
        notes.planned(boot=boot, reason="stop", who="systemd")
        for verb in ("record", "boot", "run"):
            assert main([verb, "--root", str(tmp_path), "--dry-run"], {"SERVICE_RESULT": "signal"}) == 0
