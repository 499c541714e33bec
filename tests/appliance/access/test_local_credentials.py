"""How commands get through the box's own doors: a key where the box gives one, plainly where nobody answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.access.local_credentials import own_key, read_credentials
from appliance.admin import AdminRequest, serve_admin
from appliance.device.probe import PLAIN, LocalCredentials
from netstack.wire.command import RemotingCommand

KEY = {"key": "own", "secret": "s3cret-word", "mode": "keys", "tls": False}


async def asked(path: Path, answer: Any) -> tuple[Any, LocalCredentials]:
    async def own(question: AdminRequest) -> Any:
        await trio.lowlevel.checkpoint()
        return answer

    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_admin, path, {"access.own": own}))
        key = await trio.to_thread.run_sync(own_key, path)
        way = await trio.to_thread.run_sync(read_credentials, path)
        nursery.cancel_scope.cancel()
    return key, way


async def test_the_boxs_key_signs_requests(tmp_path: Path) -> None:
    key, way = await asked(tmp_path / "admin.sock", KEY)
    assert key == KEY
    signed = way.signed(RemotingCommand(34, ext={"topic": "T"}))
    assert signed.ext is not None
    assert signed.ext["AccessKey"] == "own"
    assert signed.ext["Signature"]
    assert way.tls is None


async def test_where_plain_text_is_refused_there_is_tls(tmp_path: Path) -> None:
    _, way = await asked(tmp_path / "admin.sock", KEY | {"tls": True})
    assert way.tls is not None


@pytest.mark.parametrize("answer", [None, [], "no"])
async def test_an_answer_of_another_shape_is_no_key(tmp_path: Path, answer: Any) -> None:
    assert await asked(tmp_path / "admin.sock", answer) == (None, PLAIN)


def test_where_nobody_answers_commands_go_plainly(tmp_path: Path) -> None:
    for path in (tmp_path / "none/admin.sock", tmp_path / "admin.sock"):
        assert own_key(path) is None
        assert read_credentials(path) is PLAIN
    (tmp_path / "file.sock").write_text("no socket")
    assert own_key(tmp_path / "file.sock") is None
