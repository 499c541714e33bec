"""What is said of a table: its files are listed once, when first asked for."""

from uplink_spark.jobs.table.commits import EMPTY, DataFile, Snapshot


def test_files_are_listed_when_first_asked_for_and_once() -> None:
    asked: list[int] = []

    def files() -> list[DataFile]:
        asked.append(1)
        return [DataFile("a", 1, 10), DataFile("b", 2, 20, "gaps")]

    snapshot = Snapshot(3, {"0": 7}, {}, files)
    assert not asked
    assert [file.path for file in snapshot.part("gaps")] == ["b"]
    assert [file.path for file in snapshot.part("data")] == ["a"]
    assert asked == [1]
    assert EMPTY.part("data") == []
