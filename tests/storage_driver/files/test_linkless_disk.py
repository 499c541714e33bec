"""No step below the root goes through a link, and what is no file is not opened."""

import os
from pathlib import Path

import pytest

from storage_driver.errors import StoreRefused
from storage_driver.files.linkless_disk import LinklessDisk


def test_files_and_folders_are_as_on_any_disk(tmp_path: Path) -> None:
    disk = LinklessDisk(tmp_path / "root")
    folder = tmp_path / "root" / "a" / "b"
    disk.make_folder(folder)
    disk.make_folder(folder)
    disk.open(folder / "one.tmp", create=True).write([b"1"], 0)
    disk.rename(folder / "one.tmp", folder / "one")
    assert [(facts.name, facts.size, facts.is_folder) for facts in disk.list(folder)] == [("one", 1, False)]
    assert disk.open(folder / "one", read_only=True).read(9, 0) == b"1"
    assert disk.list(folder / "none") == []


@pytest.mark.parametrize("place", ["a", "a/b", "a/b/one"])
def test_a_link_on_the_way_is_refused_with_its_name(tmp_path: Path, place: str) -> None:
    disk, folder = LinklessDisk(tmp_path / "root"), tmp_path / "root" / "a" / "b"
    disk.make_folder(folder)
    disk.open(folder / "one", create=True)
    there = tmp_path / "root" / place
    there.rename(tmp_path / "moved")
    there.symlink_to(tmp_path / "moved")
    with pytest.raises(StoreRefused, match=f"{there} is a symbolic link"):
        disk.open(folder / "one", create=True)
    with pytest.raises(StoreRefused):
        disk.list(folder)


def test_a_pipe_does_not_hold_a_copy_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreRefused, match="is no file"):
        LinklessDisk(tmp_path).open(tmp_path / "pipe", read_only=True)
