"""The files of a zone on a disk, as retention handles them (a bucket: test_objects.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from uplink_spark.centre.zone_files.keeping import DiskKeeping, open_keeping
from uplink_spark.errors import LandingError


@pytest.fixture
def files(tmp_path: Path) -> DiskKeeping:
    return DiskKeeping(str(tmp_path))


def test_a_small_file_is_replaced_in_a_folder_that_may_be_new(files: DiskKeeping) -> None:
    for text in (b"one", b"two"):
        files.replace("retention/0000.json", text)
        assert files.read("retention/0000.json", 1) == text[1:]
    assert files.names("retention") == ["0000.json"]


def test_the_folder_of_a_day_goes_with_its_last_pack(files: DiskKeeping, tmp_path: Path) -> None:
    for name in ("a.pack", "b.pack"):
        files.replace(f"pack/0000/2023-11-14/{name}", b"12345")
    assert files.size("pack/0000/2023-11-14/a.pack") == 5
    files.delete("pack/0000/2023-11-14/a.pack")
    assert files.names("pack/0000/2023-11-14") == ["b.pack"]
    files.delete("pack/0000/2023-11-14/b.pack")
    files.delete("pack/0000/2023-11-14/b.pack")  # gone: no error
    assert list((tmp_path / "pack/0000").iterdir()) == []


def test_a_manifest_folder_stays_when_it_is_empty(files: DiskKeeping, tmp_path: Path) -> None:
    files.replace("manifest/0000/x.log", b"")
    files.delete("manifest/0000/x.log")
    assert (tmp_path / "manifest/0000").is_dir()


def test_a_zone_is_opened_by_path_or_url(tmp_path: Path) -> None:
    files = open_keeping(tmp_path.as_uri())
    files.replace("x/y", b"z")
    assert (tmp_path / "x/y").read_bytes() == b"z"
    with pytest.raises(LandingError, match="ftp://host/zone"):
        open_keeping("ftp://host/zone")
