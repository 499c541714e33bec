"""`update`: what cannot be installed is told in one line with its exit code, and leaves the slots as they are."""

import argparse
import shutil
from pathlib import Path

import pytest

from appliance.commands.device.update import add_arguments, run, update
from provisioning.box_files import BoxFiles
from provisioning.testing import folder_box, signed_bundle
from uplink_spark.testing import files_end_at


def options(root: Path, bundle: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([str(bundle), "--root", str(root), *more])


def test_a_bundle_that_is_not_there_or_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_box(tmp_path / "box")
    (tmp_path / "junk.rbx").write_bytes(b"junk")
    (tmp_path / "folder.rbx").mkdir()
    for name, said in (("none.rbx", "does not exist"), ("junk.rbx", "junk.rbx"), ("folder.rbx", "folder.rbx")):
        assert run(options(tmp_path / "box", tmp_path / name)) != 0
        err = capsys.readouterr().err
        assert said in err, name
        assert err.startswith("rocketbox: ")
        assert err.count("\n") == 1


def test_a_box_whose_versions_come_with_apt_has_no_slots_and_an_update_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = folder_box(tmp_path / "box")
    bundle = signed_bundle(tmp_path, box)
    shutil.rmtree(tmp_path / "box/opt")
    assert run(options(tmp_path / "box", bundle)) == 5
    assert "E302 this box has no slots: apt or pip installed it" in capsys.readouterr().err
    assert not box.files.slots.folder.exists()


def test_a_good_bundle_waits_in_the_idle_slot_and_its_archive_does_not_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = folder_box(tmp_path / "box")
    bundle = signed_bundle(tmp_path, box)
    files = BoxFiles(tmp_path / "box")
    before = files.slots.load().active
    text = update(options(tmp_path / "box", bundle))
    assert "on trial from the next boot; if it fails the box returns to" in text
    assert f"is in slot {before}" not in text  # what runs is never written over
    assert not list(files.slots.folder.glob("*.app"))
    capsys.readouterr()
    assert run(options(tmp_path / "box", bundle)) == 5
    told = capsys.readouterr()
    assert "E306 slot b (1.4.0) is on trial: nothing was written" in told.err
    assert "is replaced" not in told.out
    assert files.slots.load().active == before or files.slots.load().active in text


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    box = folder_box(tmp_path / "box")
    bundle = signed_bundle(tmp_path, box, size=20_000)
    slots = BoxFiles(tmp_path / "box").slots
    before = slots.load()
    with files_end_at(1000):
        code = run(options(tmp_path / "box", bundle))
    assert code != 0
    assert capsys.readouterr().err.startswith("rocketbox: ")
    assert slots.load() == before
    assert not list(slots.folder.glob("*.app"))


def test_the_version_that_runs_replaces_nothing_and_the_way_back_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = folder_box(tmp_path / "box")
    bundle, slots = signed_bundle(tmp_path, box), BoxFiles(tmp_path / "box").slots
    before = slots.load()
    slots.save(before._replace(versions={"a": "1.4.0", "b": "1.3.0"}, active="a"))
    slots.point_at("a")
    same = slots.load()
    assert run(options(tmp_path / "box", bundle)) != 0
    err = capsys.readouterr().err
    assert "1.4.0 is already running, in slot a: nothing was written, it can go back to 1.3.0 in slot b" in err
    assert slots.load() == same
    assert run(options(tmp_path / "box", bundle, "--again")) == 0
    out = capsys.readouterr().out
    assert "slot b (1.3.0) is replaced by 1.4.0; if it fails the box returns to 1.4.0 in slot a" in out
    assert out.count("if it fails the box returns to 1.4.0 in slot a") == 2
