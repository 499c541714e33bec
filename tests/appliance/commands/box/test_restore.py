"""backup and restore: a copy of a running box serves elsewhere, what is no whole copy is refused."""

import os
from pathlib import Path

import pytest
import trio

from appliance.__main__ import main
from tests.appliance.box import connected, messages_of, pull, running_box, send


async def command(*words: object) -> int:
    return await trio.to_thread.run_sync(main, [str(word) for word in words])


@pytest.mark.slow
async def test_a_running_box_is_copied_and_its_copy_serves_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, copy, second = tmp_path / "first", tmp_path / "copy", tmp_path / "second"
    async with running_box(first) as box, connected(box) as channel:
        for number in range(3):
            await channel.ask(send("T", b"m%d" % number, queue_id=0), timeout_s=5)
        assert await command("backup", copy, "--data", first) == 0
    assert await command("restore", copy, "--data", second) == 0
    assert await command("restore", copy, "--data", second) == 2  # never over a log that is there
    async with running_box(second) as box, connected(box) as channel:
        answer = await channel.ask(pull("T"), timeout_s=5)
        assert [found.body for found in messages_of(answer)] == [b"m0", b"m1", b"m2"]
    assert await command("fsck", second) == 0  # the first start made the queues
    assert "already holds a log" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_what_root_restores_belongs_to_the_user_of_the_data_folder(tmp_path: Path) -> None:
    async with running_box(tmp_path / "first") as box, connected(box) as channel:
        await channel.ask(send("T", b"m", queue_id=0), timeout_s=5)
    assert await command("backup", tmp_path / "copy", "--data", tmp_path / "first") == 0
    (tmp_path / "second").mkdir()
    os.chown(tmp_path / "second", 4711, 4712)
    assert await command("restore", tmp_path / "copy", "--data", tmp_path / "second") == 0
    made = [path.stat() for path in (tmp_path / "second").rglob("*")]
    assert {(each.st_uid, each.st_gid) for each in made} == {(4711, 4712)}


async def test_what_is_no_store_is_said_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await command("backup", tmp_path / "to", "--data", tmp_path / "none") == 2
    assert await command("restore", tmp_path / "none", "--data", tmp_path / "to") == 2
    said = capsys.readouterr().err
    assert "does not contain a store" in said
    assert "does not contain a backup" in said


@pytest.mark.slow
async def test_a_copy_that_lost_a_file_on_its_way_is_not_put_in_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_box(tmp_path / "first") as box, connected(box) as channel:
        await channel.ask(send("T", b"m", queue_id=0), timeout_s=5)
    assert await command("backup", tmp_path / "copy", "--data", tmp_path / "first") == 0
    (segment,) = (tmp_path / "copy" / "commitlog").iterdir()
    segment.unlink()
    assert await command("restore", tmp_path / "copy", "--data", tmp_path / "second") == 2
    said = capsys.readouterr().err
    assert "is incomplete" in said
    assert "fsck --salvage" in said  # the next step
    assert not (tmp_path / "second" / "store").exists()
