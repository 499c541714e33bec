"""loss: a box whose log was cut short is not well until somebody has acknowledged it, also over a restart."""

import json
import os
from pathlib import Path

import pytest
import trio

from appliance.__main__ import main
from storage_driver.files.disk import RealDisk
from storage_driver.log.cut_history import CutDone, CutHistory
from tests.appliance.box import connected, running_box, send


async def command(*words: object) -> int:
    return await trio.to_thread.run_sync(main, [str(word) for word in words])


@pytest.mark.slow
async def test_a_box_that_lost_messages_is_not_well_until_it_is_acknowledged_while_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        for number in range(40):
            await channel.ask(send("T", b"%1000d" % number, queue_id=number % 2), timeout_s=5)
    async with running_box(tmp_path):
        pass  # a start leaves the position behind all that it found
    assert await command("loss", "--data", tmp_path) == 0
    assert "nothing was lost" in capsys.readouterr().out
    os.truncate(next((tmp_path / "store/commitlog").iterdir()), 20_000)
    for _ in range(2):
        async with running_box(tmp_path):
            pass
    assert await command("loss", "--data", tmp_path, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["messages"], told["acknowledged"], told["number"]) == (24, False, 1)
    async with running_box(tmp_path):
        assert await command("loss", "--data", tmp_path, "--acknowledge") == 0
        said = capsys.readouterr().out
        assert "12  messages of T, queue 0" in said
        assert said.endswith("`rocketbox status` is without them within half a minute\n")
    assert await command("loss", "--data", tmp_path) == 0
    assert "half a minute" not in capsys.readouterr().out


@pytest.mark.slow
async def test_what_a_leader_had_this_disk_take_back_is_told_until_it_is_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    (root / "rocketbox").mkdir(parents=True)
    CutHistory(RealDisk(), root).note(CutDone(4096, 8192, "a leads term 7", ["log-4096"], 1_700_000_000_000, 3))
    assert await command("loss", "--data", tmp_path) == 1
    told = capsys.readouterr().out
    assert "3 messages, log offsets 4096 to 8192: a leads term 7" in told
    assert "kept in log-4096: stop this box, `rocketbox fsck" in told
    assert await command("loss", "--data", tmp_path, "--acknowledge") == 0
    assert await command("loss", "--data", tmp_path, "--json") == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (row["taken_back"], row["messages"], row["acknowledged"]) == (True, 3, True)
