import errno
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from storage_driver.errors import StateDamaged
from storage_driver.files.disk import RealDisk
from storage_driver.files.state_file import StateFile, parse_state, quote_bare_keys
from storage_driver.testing import MemoryDisk
from tests.protection import protected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            '{"offsetTable":{"TopicA@groupA":{0:13,1:34},"%RETRY%groupA@groupA":{0:5}}}',
            {"offsetTable": {"TopicA@groupA": {"0": 13, "1": 34}, "%RETRY%groupA@groupA": {"0": 5}}},
        ),
        ('{\n\t"offsetTable":{1:2,3:7\n\t}\n}', {"offsetTable": {"1": 2, "3": 7}}),
        ('{"a":"x{1:2,3:4}\\"{5:6"}', {"a": 'x{1:2,3:4}"{5:6'}),
        ('{"a":[1,-2.5e3,true,null]}', {"a": [1, -2500.0, True, None]}),
        ("{-1 : {2:3}}", {"-1": {"2": 3}}),
    ],
)
def test_files_as_apache_writes_them_are_read(text: str, value: Any) -> None:
    assert parse_state(text.encode()) == value
    assert json.loads(quote_bare_keys(text)) == value


@pytest.mark.parametrize("raw", [b"", b"\0\0\0", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_table_is_a_value_error(raw: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_state(raw)


async def test_a_table_survives_the_loss_of_its_file(tmp_path: Path) -> None:
    file = StateFile(RealDisk(), tmp_path / "config" / "t.json")
    assert file.load() is None
    file.save({"v": 1})
    await file.write({"v": "zwei 二"})
    assert file.load() == {"v": "zwei 二"}
    for harm in (b"", b"{broken"):
        file.path.write_bytes(harm)
        assert file.load() == {"v": 1}
    file.path.unlink()
    assert file.load() == {"v": 1}
    (tmp_path / "config" / "t.json.bak").write_bytes(b"junk")
    with pytest.raises(StateDamaged, match=r"t\.json\.bak"):
        file.load()


def test_a_table_is_replaced_though_nobody_may_write_the_version_before(tmp_path: Path) -> None:
    file = StateFile(RealDisk(), tmp_path / "t.json")
    for number in range(2):
        file.save({"v": number})
    with protected(tmp_path / "t.json.bak"):
        file.save({"v": 2})
    assert file.load() == {"v": 2}


def test_a_removed_table_is_gone_with_its_version_before() -> None:
    disk = MemoryDisk(folders=("/", "/data"))
    file = StateFile(disk, Path("/data/x.json"))
    for value in ({"n": 1}, {"n": 2}):
        file.save(value)
    file.remove()
    assert StateFile(disk.restarted(), file.path).load() is None
    assert disk.list(Path("/data")) == []
    file.remove()  # there is none


def test_an_error_at_any_step_leaves_the_old_or_the_new_table() -> None:
    steps = 20
    for number in range(steps):
        disk = MemoryDisk(folders=("/", "/c"))
        file = StateFile(disk, Path("/c/t.json"))
        file.save({"v": 1})
        file.save({"v": 2})
        before = len(disk.steps)
        disk.fail_at, disk.fail_with = before + number, errno.ENOSPC
        try:
            file.save({"v": 3})
        except OSError:
            assert file.load() in ({"v": 2}, {"v": 3})
        else:
            assert file.load() == {"v": 3}
            steps = number
            break
    assert 4 < steps < 20


def test_two_threads_that_save_at_once_leave_a_whole_table(tmp_path: Path) -> None:
    file, wide = StateFile(RealDisk(), tmp_path / "t.json"), "x" * 10_000
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(file.save, {"v": number, "wide": wide}) for number in range(40)]:
            future.result()
    assert file.load()["wide"] == wide


def test_a_damaged_table_is_kept_and_told_until_somebody_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    file = StateFile(RealDisk(), path)
    file.save({"a": 1})
    file.save({"a": 2})
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / name).write_text(f"broken {name}")
    with pytest.raises(StateDamaged):
        file.load()
    assert not file.is_guessed()
    file.set_aside()
    assert (tmp_path / "topics.json.damaged").read_text() == "broken topics.json"
    file.save({"a": 3})  # what its owner guessed
    again = StateFile(RealDisk(), path)  # the next start
    assert (again.load(), again.is_guessed(), file.is_guessed()) == ({"a": 3}, True, True)
    (tmp_path / "topics.json").write_text("broken again")
    again.set_aside()
    assert (tmp_path / "topics.json.damaged").read_text() == "broken topics.json", "what people had"
    (tmp_path / "topics.json.damaged").unlink()
    assert not again.is_guessed()
    assert not file.is_guessed()


def test_a_damaged_table_that_cannot_be_kept_is_told_as_long_as_the_box_runs(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text("{")
    file = StateFile(RealDisk(), tmp_path / "topics.json")
    with protected(tmp_path):
        file.set_aside()
    assert file.is_guessed()
