import json
import os
from pathlib import Path

import pytest

from provisioning.bundle import pack_app
from provisioning.slots import SlotError, Slots, SlotState, at_boot, committed, main, rolled_back

TRIAL = SlotState("a", "b", 3, {"a": "1.3.2", "b": "1.4.0"}, ("1.3.2",))


def archive(folder: Path, version: str = "1.4.0") -> tuple[Path, dict[str, tuple[int, int, str]]]:
    tree = folder / f"tree-{version}"
    (tree / "lib/python3.11/site-packages/appliance").mkdir(parents=True)
    (tree / "lib/python3.11/site-packages/appliance/__init__.py").write_text(f"v = {version!r}\n")
    (tree / "lib/run.sh").write_text("#!/bin/sh\n")
    (tree / "lib/run.sh").chmod(0o755)
    packed = folder / f"{version}.tar.xz"
    return packed, pack_app(tree, packed)


def slots(tmp_path: Path) -> Slots:
    base = tmp_path / "opt"
    (base / "slots/a").mkdir(parents=True)
    found = Slots(base)
    found.save(SlotState(versions={"a": "1.3.2"}, committed=("1.3.2",)))
    found.point_at("a")
    return found


def test_a_trial_loses_a_try_at_each_boot_and_then_the_old_slot_is_back() -> None:
    state, ran = TRIAL, []
    for _ in range(5):
        state, slot = at_boot(state)
        ran.append(slot)
    assert ran == ["b", "b", "b", "a", "a"]
    assert (state.trial, state.bad, (state.rolled_back or {})["version"]) == (None, ("1.4.0",), "1.4.0")


def test_a_commit_makes_the_trial_the_active_slot_and_keeps_the_list_of_committed_versions() -> None:
    state = committed(TRIAL)
    assert (state.active, state.trial, state.committed) == ("b", None, ("1.3.2", "1.4.0"))
    assert committed(state) == state
    assert rolled_back(state, "nothing on trial") == state


def test_install_boot_commit_and_the_other_way_round(tmp_path: Path) -> None:
    found = slots(tmp_path)
    packed, files = archive(tmp_path)
    assert found.install(packed, files, "1.4.0") == "b"
    assert found.running() == "a"
    _, slot = found.boot()
    assert (slot, found.running(), found.load().tries) == ("b", "b", 2)
    assert found.commit().active == "b"
    packed, files = archive(tmp_path, "1.5.0")
    assert found.install(packed, files, "1.5.0") == "a"
    assert found.load().versions == {"a": "1.5.0", "b": "1.4.0"}


def test_an_installed_slot_is_an_environment_of_its_own_that_runs_and_cannot_be_written(tmp_path: Path) -> None:
    import subprocess

    found = slots(tmp_path)
    packed, files = archive(tmp_path)
    found.install(packed, files, "1.4.0")
    found.boot()
    slot = tmp_path / "opt/slots/b"
    assert all(path.stat().st_mode & 0o222 == 0 for path in slot.rglob("*") if not path.is_symlink())
    assert (slot / "lib/run.sh").stat().st_mode & 0o100
    python = tmp_path / "opt/appliance/bin/python"
    done = subprocess.run(
        [python, "-IB", "-c", "import sys, appliance; print(appliance.v, sys.prefix)"], capture_output=True, text=True
    )
    if "python3.11" in os.path.realpath("/usr/bin/python3"):
        assert done.stdout.split() == ["1.4.0", str(tmp_path / "opt/appliance")]


def test_a_bit_flip_in_a_slot_is_found_and_named(tmp_path: Path) -> None:
    found = slots(tmp_path)
    packed, files = archive(tmp_path)
    found.install(packed, files, "1.4.0")
    assert found.check("b") == "1.4.0"
    victim = tmp_path / "opt/slots/b/lib/run.sh"
    victim.chmod(0o644)
    victim.write_text("#!/bin/sH\n")
    with pytest.raises(SlotError, match=r"b/lib/run\.sh differs"):
        found.check("b")


def test_a_file_that_is_missing_or_too_much_is_found(tmp_path: Path) -> None:
    found = slots(tmp_path)
    packed, files = archive(tmp_path)
    with pytest.raises(SlotError, match="not on the list"):
        found.install(packed, {name: row for name, row in files.items() if not name.endswith(".sh")}, "1.4.0")
    with pytest.raises(SlotError, match="missing"):
        found.install(packed, files | {"lib/more": (0o644, 0, "0" * 64)}, "1.4.0")
    assert found.load().trial is None


def test_nothing_is_installed_beside_a_trial(tmp_path: Path) -> None:
    found = slots(tmp_path)
    packed, files = archive(tmp_path)
    found.install(packed, files, "1.4.0")
    with pytest.raises(SlotError, match="on trial"):
        found.install(packed, files, "1.4.1")


def test_an_interrupted_install_leaves_the_running_slot_and_can_be_repeated(tmp_path: Path) -> None:
    found = slots(tmp_path)
    packed, files = archive(tmp_path)

    class PowerCut(Exception):
        pass

    def cut(stage: str, done: int, total: int) -> None:
        raise PowerCut

    with pytest.raises(PowerCut):
        found.install(packed, files, "1.4.0", progress=cut)
    assert (found.boot()[1], found.load().trial) == ("a", None)
    assert found.install(packed, files, "1.4.0") == "b"


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "bin/python", "lib/../../evil", "library/x"])
def test_an_archive_that_reaches_beyond_lib_is_refused(tmp_path: Path, name: str) -> None:
    import io
    import tarfile

    found, packed = slots(tmp_path), tmp_path / "evil.tar.xz"
    with tarfile.open(packed, "w:xz") as out:
        member = tarfile.TarInfo(name)
        member.size = 1
        out.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(SlotError, match="only files below lib/"):
        found.install(packed, {}, "1.4.0")


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "device"])
def test_links_and_devices_in_an_archive_are_refused(tmp_path: Path, kind: str) -> None:
    import tarfile

    found, packed = slots(tmp_path), tmp_path / "evil.tar.xz"
    types = {"symlink": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE, "device": tarfile.BLKTYPE}
    with tarfile.open(packed, "w:xz") as out:
        member = tarfile.TarInfo("lib/evil")
        member.type, member.linkname = types[kind], "/etc/passwd"
        out.addfile(member)
    with pytest.raises(SlotError, match="only files below lib/"):
        found.install(packed, {}, "1.4.0")


def test_only_the_slot_that_runs_can_be_committed(tmp_path: Path) -> None:
    found = slots(tmp_path)
    packed, files = archive(tmp_path)
    found.install(packed, files, "1.4.0")
    with pytest.raises(SlotError, match="reboot first"):
        found.commit()


def test_a_roll_back_by_hand_remembers_the_version(tmp_path: Path) -> None:
    found = slots(tmp_path)
    packed, files = archive(tmp_path)
    found.install(packed, files, "1.4.0")
    found.boot()
    state = found.roll_back("too slow")
    assert (found.running(), state.bad, (state.rolled_back or {})["reason"]) == ("a", ("1.4.0",), "too slow")


def test_each_change_of_state_has_a_new_serial_and_a_box_without_state_runs_slot_a(tmp_path: Path) -> None:
    assert Slots(tmp_path / "nowhere").load().active == "a"
    found = slots(tmp_path)
    before = found.load().serial
    assert found.save(found.load()).serial == before + 1


def test_the_command_line_boots_commits_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, base = slots(tmp_path), str(tmp_path / "opt")
    packed, files = archive(tmp_path)
    found.install(packed, files, "1.4.0")
    assert main(["boot", "--base", base]) == 0
    assert main(["commit", "--base", base]) == 0
    assert main(["check", "b", "--base", base]) == 0
    assert main(["check", "a", "--base", base]) == 1
    assert main(["dance"]) == 2
    capsys.readouterr()
    assert main(["status", "--base", base]) == 0
    assert json.loads(capsys.readouterr().out)["active"] == "b"


def test_the_module_needs_nothing_but_the_standard_library() -> None:
    import ast
    import sys

    import provisioning.slots

    tree = ast.parse(Path(provisioning.slots.__file__).read_text())
    names = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    names |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names)


def test_a_slot_that_is_part_of_a_read_only_image_is_linked_checked_and_later_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tmp_path / "image/slot"
    (tree / "lib").mkdir(parents=True)
    (tree / "lib/a.py").write_text("a = 1\n")
    assert main(["prepare", str(tree), "1.0.0"]) == 0
    base = ["--base", str(tmp_path / "opt")]
    assert main(["adopt-link", str(tree), "1.0.0", *base]) == 0
    found = Slots(tmp_path / "opt")
    assert (found.running(), found.load().version("a"), found.check("a")) == ("a", "1.0.0", "1.0.0")
    assert (tmp_path / "opt/slots/a").resolve() == tree
    for version in ("1.4.0", "1.5.0"):  # the second one takes the link's place
        packed, files = archive(tmp_path, version)
        found.install(packed, files, version)
        found.boot()
        found.commit()
    assert not (tmp_path / "opt/slots/a").is_symlink()
    assert (tree / "lib/a.py").exists()
    assert "slot=a" in capsys.readouterr().out


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "null", '{"active": "c"}', '{"versions": []}', '{"committed": null}', "\xff"]
)
def test_of_a_damaged_state_the_one_before_is_taken(tmp_path: Path, damage: str) -> None:
    found = slots(tmp_path)
    before = found.save(TRIAL)
    found.save(committed(TRIAL))
    state = found.folder / "state.json"
    state.write_bytes(damage.encode("latin-1"))
    assert found.load() == before
    assert found.boot()[1] == "b"
    assert json.loads(state.read_text())["tries"] == TRIAL.tries - 1
    for name in ("state.json", "state.json.old"):
        (found.folder / name).write_bytes(damage.encode("latin-1"))
    with pytest.raises(SlotError, match=r"state\.json is damaged: "):
        found.load()
    assert main(["boot", "--base", str(found.base)]) == 1
