"""A file is replaced whole and its name synced, or the old one stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from uplink_spark.testing import files_end_at
from uplink_spark.wire.durable import sync_folder, write_synced


def test_a_file_is_synced_before_its_name_and_the_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen, real = tmp_path / "state", list[str](), os.fsync
    path.write_bytes(b"old")

    def fsync(fd: int) -> None:
        seen.append(f"{Path(os.readlink(f'/proc/self/fd/{fd}')).name} while it holds {path.read_bytes().decode()}")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    write_synced(path, b"new")
    assert seen == ["state.tmp while it holds old", f"{tmp_path.name} while it holds new"]
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_stays_where_the_new_one_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with files_end_at(50), pytest.raises(OSError, match="too large"):
        write_synced(path, b"new" * 100)
    assert path.read_bytes() == b"old"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "none")
