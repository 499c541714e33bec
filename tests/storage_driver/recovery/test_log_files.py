"""The files of a log as a start finds them: its own are opened whole, the others set aside, the missing ones blank."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from storage_driver.files.checkpoint import CheckpointValues
from storage_driver.log.segment import segment_name
from storage_driver.recovery.log_files import MOST_BRIDGED, LogFiles
from storage_driver.recovery.verdict import RecoveryVerdict
from storage_driver.testing import V1, MemoryDisk

ROOT, SIZE = Path("/data"), 8192
LOG = ROOT / "commitlog"


def at(log_offset: int, size: int = SIZE) -> bytes:
    """Return a file of the log that begins with a record; its log offset is no part of the checksum."""
    return (V1[:28] + log_offset.to_bytes(8, "big") + V1[36:]).ljust(size, b"\0")


class Found:
    """A folder of log files, and what loading it said."""

    def __init__(self, files: Mapping[int | str, bytes], segment_bytes: int = SIZE) -> None:
        names = {name if isinstance(name, str) else segment_name(name): data for name, data in files.items()}
        inside = {str(LOG / name): data for name, data in names.items()}
        self.disk = MemoryDisk(inside, folders=("/", "/data", str(LOG)))
        self.verdict = RecoveryVerdict()
        self.lost: list[tuple[int, int, bool]] = []
        self.files = LogFiles(self.disk, ROOT, segment_bytes, verdict=self.verdict, losing=self._losing)

    def _losing(self, start: int, end: int, why: str, *, sure: bool = False) -> None:
        self.lost.append((start, end, sure))

    def bases(self, position: CheckpointValues | None = None, reach: int = 0, **more: Any) -> list[int]:
        return [segment.base for segment in self.files.load(position, reach, **more)]

    def names(self, folder: str) -> list[str]:
        path = ROOT / folder
        return [facts.name for facts in self.disk.list(path)] if str(path) in self.disk.names else []


def position(queues_to: int) -> CheckpointValues:
    return CheckpointValues(queues_to, 0, 0, 0, b"")


def test_whole_files_in_a_row_are_the_log_and_say_nothing() -> None:
    found = Found({base: at(base) for base in (0, SIZE, 2 * SIZE)})
    assert found.bases() == [0, SIZE, 2 * SIZE]
    assert (found.lost, found.verdict.reasons, found.names("quarantine")) == ([], [], [])


def test_an_empty_folder_has_no_segments() -> None:
    assert Found({}).bases() == []


def test_what_has_no_name_of_a_segment_is_set_aside_and_an_empty_file_goes() -> None:
    found = Found({0: at(0), SIZE: b"", "notes.txt": b"mine"})
    assert found.bases() == [0]
    assert (found.names("quarantine"), found.verdict.moved) == (["commitlog-notes.txt"], 1)
    assert found.names("commitlog") == [segment_name(0)]


def test_a_missing_file_in_the_middle_becomes_a_blank_one_and_is_surely_lost() -> None:
    found = Found({0: at(0), 2 * SIZE: at(2 * SIZE)})
    assert found.bases() == [0, SIZE, 2 * SIZE]
    assert found.lost == [(SIZE, 2 * SIZE, True)]
    assert found.files.suspect == SIZE
    assert [(gap.start, gap.end) for gap in found.verdict.quarantined] == [(SIZE, 2 * SIZE)]


def test_a_short_file_has_its_length_again_and_the_rest_is_told_first() -> None:
    found = Found({0: at(0)[:5000], SIZE: at(SIZE)})
    first, _ = found.files.load(None, 0)
    assert (first.size, first.file.size()) == (SIZE, SIZE)
    assert found.lost == [(5000, SIZE, True)]
    newest = Found({0: at(0), SIZE: at(SIZE)[:5000]})
    newest.bases()
    assert newest.lost == [(SIZE + 5000, 2 * SIZE, False)], "of the newest file a witness has to say that it was more"


def test_what_is_behind_a_files_length_is_kept_in_quarantine() -> None:
    found = Found({0: at(0), SIZE: at(SIZE) + b"more", 2 * SIZE: at(2 * SIZE)})
    assert found.bases() == [0, SIZE, 2 * SIZE]
    assert found.disk.open(LOG / segment_name(SIZE), read_only=True).size() == SIZE
    (kept,) = found.names("quarantine")
    assert found.disk.open(ROOT / "quarantine" / kept, read_only=True).read(9, 0) == b"more"


def test_files_that_were_prepared_and_never_written_go() -> None:
    found = Found({0: at(0), SIZE: bytes(SIZE), 2 * SIZE: bytes(SIZE)})
    assert found.bases() == [0]
    assert found.names("commitlog") == [segment_name(0)]


def test_the_size_that_most_files_have_counts_not_the_configured_one() -> None:
    found = Found({base: at(base) for base in (0, SIZE, 2 * SIZE)}, segment_bytes=4 * SIZE)
    assert found.bases() == [0, SIZE, 2 * SIZE]
    assert found.files.segment_bytes == SIZE
    cut = Found({0: at(0)[:5000]}, segment_bytes=4 * SIZE)
    cut.bases()
    assert cut.files.segment_bytes == 4 * SIZE, "a file that was cut short does not tell"


def test_of_two_logs_the_one_with_the_saved_position_is_this_boxs() -> None:
    far = 100 * SIZE
    both: dict[int | str, bytes] = {0: at(0), SIZE: at(SIZE), far: at(far)}
    larger = Found(both)
    assert larger.bases() == [0, SIZE]
    assert larger.verdict.foreign_records
    assert larger.names("quarantine") == [f"commitlog-{segment_name(far)}"]
    assert Found(both).bases(position(far + 50)) == [far]


@pytest.mark.parametrize("base", [SIZE + 1, (1 << 63) - SIZE // 2 * 2])
def test_a_file_at_no_place_of_a_segment_is_set_aside(base: int) -> None:
    found = Found({0: at(0), base: at(base)})
    assert found.bases() == [0]
    assert found.names("quarantine") == [f"commitlog-{segment_name(base)}"]


def test_a_blank_file_behind_a_gap_is_no_part_of_the_log() -> None:
    found = Found({0: at(0), 2 * SIZE: bytes(SIZE)})
    assert found.bases() == [0]
    assert "has no record" in found.verdict.reasons[0]


def test_a_log_that_begins_later_than_it_did_has_lost_its_begin() -> None:
    found = Found({2 * SIZE: at(2 * SIZE)})
    assert found.bases(first=SIZE) == [2 * SIZE]
    assert found.lost == [(SIZE, 2 * SIZE, True)]
    assert Found({SIZE: at(SIZE)}).bases(first=SIZE) == [SIZE]


def test_the_newest_file_must_take_writes_an_older_one_may_be_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    def protect(found: Found, base: int) -> None:
        there = found.disk.open

        def refusing(path: Path, *, create: bool = False, read_only: bool = False) -> Any:
            if path.name == segment_name(base) and not read_only:
                raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
            return there(path, create=create, read_only=read_only)

        monkeypatch.setattr(found.disk, "open", refusing)

    older = Found({0: at(0), SIZE: at(SIZE)})
    protect(older, 0)
    assert older.bases() == [0, SIZE]
    assert "read-only" in older.verdict.reasons[0]
    newest = Found({0: at(0), SIZE: at(SIZE)})
    protect(newest, SIZE)
    with pytest.raises(PermissionError):
        newest.bases()


def test_lost_newest_files_are_bridged_so_that_no_offset_is_given_twice() -> None:
    found = Found({0: at(0)})
    segments = found.files.load(None, 3 * SIZE)
    found.files.bridge(segments, 2 * SIZE + 1)
    assert [segment.base for segment in segments] == [0, SIZE, 2 * SIZE]
    assert found.lost == [(SIZE, 3 * SIZE, False)]
    found.files.bridge(segments, (MOST_BRIDGED + 4) * SIZE)
    assert len(segments) == 3, "nobody fills a disk for a number that is wrong"


def test_a_range_without_room_for_its_copy_is_told() -> None:
    found = Found({0: at(0)})
    (segment,) = found.files.load(None, 0)
    assert found.files.quarantine_range(segment, 0, 100) is not None
    found.disk.fail_at, found.disk.keep_failing, found.disk.fail_with = len(found.disk.steps), True, errno.ENOSPC
    assert found.files.quarantine_range(segment, 100, 200) is None
    assert "bytes 100 to 200 were not copied" in found.verdict.reasons[-1]
