import os
from pathlib import Path

import pytest

from watchdog.notes import append_line, make_folder, read_json, read_lines, replace


@pytest.mark.slow
def test_lines_survive_and_only_the_newest_256_stay(tmp_path: Path) -> None:
    for at in range(300):
        append_line(tmp_path / "new" / "exits.jsonl", {"n": at})
    assert [row["n"] for row in read_lines(tmp_path / "new" / "exits.jsonl")] == list(range(44, 300))


def test_a_torn_line_is_skipped_and_a_torn_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"n":1}\n{"n":\n[3]\n{"n":4}\n')
    (tmp_path / "y").write_text('{"n":')
    assert read_lines(tmp_path / "x") == [{"n": 1}, {"n": 4}]
    assert read_json(tmp_path / "y") is None
    assert read_json(tmp_path / "missing") is None
    assert read_lines(tmp_path / "missing") == []


def test_of_a_file_that_no_memory_holds_the_beginning_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"n":1}\n')
    os.truncate(tmp_path / "x", 8 << 40)
    assert read_lines(tmp_path / "x") == [{"n": 1}]
    assert read_json(tmp_path / "x") is None


@pytest.mark.slow
def test_what_lies_where_the_new_file_is_made_goes(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    for make in (os.mkfifo, lambda path: path.symlink_to(tmp_path / "elsewhere")):
        make(tmp_path / "x.new")
        replace(tmp_path / "x", "text")
        assert (tmp_path / "x").read_text() == "text"
    assert (tmp_path / "elsewhere").read_text() == "kept"


def test_a_replaced_file_is_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    replace(tmp_path / "x", "one")
    replace(tmp_path / "x", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "two"


@pytest.mark.parametrize("wrong", ["file", "nowhere"])
def test_what_stands_in_place_of_the_folder_steps_aside(tmp_path: Path, wrong: str) -> None:
    folder = tmp_path / "watchdog"
    for number in (1, 2):
        folder.write_text(f"{number}") if wrong == "file" else folder.symlink_to(tmp_path / "gone")
        make_folder(folder)
        append_line(folder / "boots.jsonl", {"n": number})
        if number == 1:
            (folder / "boots.jsonl").unlink()
            folder.rmdir()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["watchdog", "watchdog.found", "watchdog.found+"]


def test_what_is_no_file_in_place_of_a_note_steps_aside_once(tmp_path: Path) -> None:
    (tmp_path / "boots.jsonl" / "inside").mkdir(parents=True)
    (tmp_path / "heartbeat").symlink_to(tmp_path / "gone")
    (tmp_path / "panics").write_text("no folder")
    for _ in range(2):
        make_folder(tmp_path)
        append_line(tmp_path / "boots.jsonl", {"n": 1})
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["boots.jsonl", "boots.jsonl.found", "heartbeat.found", "panics.found"]


def test_a_folder_that_holds_other_things_than_notes_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    make_folder(tmp_path, of_notes=False)
    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize(
    "text",
    [
        *('{"boot":["x"]}', '{"boot":null}', '{"number":"1"}', '{"uptime_s":"1"}', '{"began_s":[]}', '{"wall_s":{}}'),
        *('{"versions":[]}', '{"committed":{}}', '{"bad":null}', "[" * 100_000, "[1]", "5", '"text"', "null"),
    ],
)
def test_a_note_that_a_flipped_bit_left_readable_counts_as_torn(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text + '\n{"n":1}\n')
    assert read_lines(tmp_path / "x") == [{"n": 1}]
    (tmp_path / "x").write_text(text)
    assert read_json(tmp_path / "x") is None
