"""The page of what was seen: rows in the order of the tests, whatever worker ran them and when."""

from tests.interop.table import HEAD, Seen, table_of


def test_rows_follow_the_tests_and_one_failure_is_one() -> None:
    seen = [
        Seen("test_b.py", 1, "Go", "third", "works"),
        Seen("test_a.py", 9, "Java", "second", "**fails**"),
        Seen("test_a.py", 2, "Java", "first", "works"),
        Seen("test_a.py", 12, "Java", "second", "works"),
        Seen("test_b.py", 30, "Java", "first", "not tried"),
    ]
    assert table_of(seen) == table_of(reversed(seen))
    assert table_of(seen).removeprefix(HEAD).splitlines() == [
        "| Feature | Go | Java |",
        "| --- | --- | --- |",
        "| first |  | not tried |",
        "| second |  | **fails** |",
        "| third | works |  |",
    ]


def test_a_part_of_the_tests_replaces_what_it_tried() -> None:
    page = table_of([Seen("a", 1, "Go", "first", "works"), Seen("a", 2, "Java", "second", "**fails**")])
    part = [Seen("b", 1, "Node", "third", "works"), Seen("a", 2, "Java", "second", "works")]
    assert table_of([], page) == page
    assert table_of(part, page).removeprefix(HEAD).splitlines() == [
        "| Feature | Go | Java | Node |",
        "| --- | --- | --- | --- |",
        "| first | works |  |  |",
        "| second |  | works |  |",
        "| third |  |  | works |",
    ]
