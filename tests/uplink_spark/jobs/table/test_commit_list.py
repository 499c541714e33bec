"""The commit list of earlier programs: read with or without its checkpoints, closed once, never guessed."""

import json
from pathlib import Path

import pytest

from tests.uplink_spark.jobs.old_table import commit
from uplink_spark.jobs.table.commit_list import COMMITS, CommitList
from uplink_spark.jobs.table.commits import Conflict, TableError


def test_the_state_is_what_was_added_and_not_removed(tmp_path: Path) -> None:
    commit(tmp_path, 1, add=["data/a", "ranges/b"], origin={"0": "seq 6: x"})
    commit(tmp_path, 2, add=["data/c"], remove=["data/a"])  # care says nothing of the origin
    found = CommitList(tmp_path).state()
    assert (found.version, found.end, found.origin, found.closed) == (2, {"0": 2}, {"0": "seq 6: x"}, False)
    assert [(file.path, file.part) for file in found.files] == [("ranges/b", "ranges"), ("data/c", "data")]


def test_a_checkpoint_stands_for_what_was_before_it(tmp_path: Path) -> None:
    files = [{"path": "data/a", "part": "data"}]
    (tmp_path / COMMITS).mkdir()
    body = {"v": 1, "to": {"0": 100}, "schema": 2, "origin": {}, "files": files}
    (tmp_path / COMMITS / f"{100:020d}.checkpoint.json").write_text(json.dumps(body))
    commit(tmp_path, 101, add=["data/b"])
    found = CommitList(tmp_path).state()
    assert (found.version, found.schema, [file.path for file in found.files]) == (101, 2, ["data/a", "data/b"])


def test_a_missing_first_version_is_an_error_not_an_empty_table(tmp_path: Path) -> None:
    commit(tmp_path, 2)
    with pytest.raises(TableError, match="version 1 is missing"):
        CommitList(tmp_path).state()


def test_a_list_is_closed_once_and_at_its_end(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    old = CommitList(tmp_path)
    with pytest.raises(Conflict):
        old.close(1)
    old.close(2)
    assert (old.state().closed, old.state().version) == (True, 1)
    assert not old.is_taken()
    old.note_taken()
    old.note_taken()
    assert old.is_taken()


def test_a_layout_nobody_knows_is_refused(tmp_path: Path) -> None:
    commit(tmp_path, 1, layout=9)
    with pytest.raises(TableError, match="has layout 9: update this program"):
        CommitList(tmp_path).state()
