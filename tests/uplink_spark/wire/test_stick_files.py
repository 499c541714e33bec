from pathlib import Path

import pytest

from uplink_spark.wire.stick_files import (
    INDEX,
    RECEIPTS,
    StickFile,
    StickIndex,
    StickReceipt,
    StickRefused,
    read_index,
    read_receipts,
    secret_of,
    write_file,
    write_receipts,
)

SECRET, OTHER = b"s" * 32, b"o" * 32


def export(folder: Path, *more: StickFile, box: str = "box-17") -> StickIndex:
    piece = write_file(folder, "01/piece", b"contents")
    index = StickIndex(box, ((1, 0),), ((1, 2),), 8, (piece, *more))
    write_file(folder, INDEX, index.encode(SECRET))
    return index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "box-17"


def test_an_index_is_read_as_it_was_written(folder: Path) -> None:
    assert export(folder) == read_index(folder, SECRET)


def test_an_index_under_another_secret_is_refused_unless_somebody_vouches_for_it(folder: Path) -> None:
    index = export(folder)
    with pytest.raises(StickRefused, match="MAC is wrong"):
        read_index(folder, OTHER)
    assert read_index(folder, None) == index


def test_an_index_of_another_box_is_refused(folder: Path) -> None:
    export(folder, box="box-18")
    with pytest.raises(StickRefused, match="the index is of box box-18"):
        read_index(folder, SECRET)


@pytest.mark.parametrize("contents", [b"Contents", b"content"])
def test_a_file_that_is_not_what_the_index_says_is_refused(folder: Path, contents: bytes) -> None:
    export(folder)
    (folder / "01/piece").write_bytes(contents)
    with pytest.raises(StickRefused, match="length or SHA-256 differs"):
        read_index(folder, SECRET)


def test_a_missing_file_is_named(folder: Path) -> None:
    export(folder)
    (folder / "01/piece").unlink()
    with pytest.raises(StickRefused, match=r"01/piece.*not complete"):
        read_index(folder, SECRET)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname"])
def test_a_file_outside_of_the_folder_is_not_opened(folder: Path, name: str) -> None:
    export(folder, StickFile(name, 0, bytes(32)))
    with pytest.raises(StickRefused, match="not inside the folder"):
        read_index(folder, SECRET)


def test_receipts_come_back_and_not_under_the_index_s_seal(folder: Path) -> None:
    rows = [StickReceipt(1, 0, 8, bytes(32), 5, 0, "range")]
    write_file(folder, INDEX, b"")
    write_receipts(folder, SECRET, b"l" * 16, rows)
    assert read_receipts(folder, SECRET) == (b"l" * 16, rows)
    with pytest.raises(StickRefused, match="MAC is wrong"):
        read_receipts(folder, OTHER)
    export(folder)
    (folder / RECEIPTS).write_bytes((folder / INDEX).read_bytes())
    with pytest.raises(StickRefused, match="MAC is wrong"):
        read_receipts(folder, SECRET)


def test_a_secret_is_hex_in_a_file_of_the_box_s_name(tmp_path: Path) -> None:
    with pytest.raises(StickRefused, match="no secret for box a"):
        secret_of(tmp_path, "a")
    (tmp_path / "a").write_text("zz")
    with pytest.raises(StickRefused, match="cannot be used"):
        secret_of(tmp_path, "a")
    (tmp_path / "a").write_text(SECRET.hex() + "\n")
    assert secret_of(tmp_path, "a") == SECRET
