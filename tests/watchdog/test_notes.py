from pathlib import Path

import pytest

from watchdog.notes import append_line, read_json, read_lines, replace


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


def test_a_replaced_file_is_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    replace(tmp_path / "x", "one")
    replace(tmp_path / "x", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "two"
