from pathlib import Path

from uplink_spark.jobs.table.location import locate
from uplink_spark.jobs.table.log import LOG, commit_name, lines_apart, read_commit


def test_versions_that_a_restore_took_back_are_in_no_line_but_their_own() -> None:
    before = {1: 0, 2: 1, 3: 2, 4: 3, 5: 2, 6: 5}.__getitem__  # 5 restores 2
    assert lines_apart(6, 4, before) == ([5, 6], [3, 4])
    assert lines_apart(6, 2, before) == ([5, 6], [])
    assert lines_apart(6, 6, before) == ([], [])


def test_a_commit_says_what_it_is_and_which_files_it_brought(tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    add = (
        '{"add": {"path": "p", "size": 9, "dataChange": true, "partitionValues": {"part": "data", "landed_day": "d"}}}'
    )
    restored = '{"commitInfo": {"operation": "RESTORE"}}'
    (tmp_path / commit_name(0)).write_text(add + '\n{"txn": {"appId": "rocketbox/0", "version": 1}}')
    (tmp_path / commit_name(1)).write_text(add + '\n{"txn": {"appId": "rocketbox/care", "version": 1}}\n' + restored)
    first, second = (read_commit(locate(str(tmp_path)), version) for version in (0, 1))
    assert first is not None
    assert second is not None
    assert ([file.path for file in first.new_files()], first.is_of_rows(), first.restores()) == (["p"], True, False)
    assert (second.new_files(), second.is_of_rows(), second.restores()) == ([], False, True)
    assert read_commit(locate(str(tmp_path)), 2) is None
