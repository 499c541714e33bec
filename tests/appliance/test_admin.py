"""The box's own socket: one question a connection, a folder that comes along, refusals with their reason."""

import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from appliance import admin
from appliance.admin import Action, AdminRefused, AdminRequest, AdminSilent, ask, open_socket, serve_admin, short_path
from tests.waiting import until


async def double(question: AdminRequest) -> object:
    await trio.lowlevel.checkpoint()
    return {"twice": question.values["number"] * 2}


async def refuse(question: AdminRequest) -> object:
    await trio.lowlevel.checkpoint()
    raise AdminRefused("not now")


async def listing(question: AdminRequest) -> object:
    await trio.lowlevel.checkpoint()
    return sorted(os.listdir(question.folder)) if question.folder is not None else None


ACTIONS: Mapping[str, Action] = {"double": double, "refuse": refuse, "list": listing}


@asynccontextmanager
async def served(path: Path, actions: Mapping[str, Action] = ACTIONS) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_admin, path, actions))
        yield
        nursery.cancel_scope.cancel()


async def asked(path: Path, do: str, values: Mapping[str, object] | None = None, folder: Path | None = None) -> Any:
    return await trio.to_thread.run_sync(partial(ask, path, do, values, folder=folder, timeout_s=60))


async def raw(path: Path, sent: bytes, *, end: bool = True) -> bytes:
    with short_path(path) as name:
        stream = await trio.open_unix_socket(name)
    async with stream:
        await stream.send_all(sent)
        if end:
            await stream.send_eof()
        with trio.fail_after(60):
            return b"".join([bytes(part) async for part in stream])


async def test_an_answer_a_refusal_and_what_this_box_cannot_do(tmp_path: Path) -> None:
    path = tmp_path / "run" / "admin.sock"
    async with served(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await asked(path, "double", {"number": 21}) == {"twice": 42}
        with pytest.raises(AdminRefused, match=r"^not now$"):
            await asked(path, "refuse")
        with pytest.raises(AdminRefused, match="'fly' is not available: the running box does not have it"):
            await asked(path, "fly")
        with pytest.raises(AdminRefused, match="is not available: the box is in no group"):
            await asked(path, "group.status")


async def test_a_question_that_an_action_does_not_take_ends_alone(tmp_path: Path) -> None:
    async with served(tmp_path / "a.sock"):
        with pytest.raises(AdminRefused, match="double failed: KeyError"):
            await asked(tmp_path / "a.sock", "double")
        assert await asked(tmp_path / "a.sock", "double", {"number": 2}) == {"twice": 4}


async def test_a_folder_comes_along_and_is_closed_behind_its_question(tmp_path: Path) -> None:
    path, folder = tmp_path / "admin.sock", tmp_path / "stick"
    folder.mkdir()
    (folder / "piece").touch()
    async with served(path):
        assert await asked(path, "list", folder=folder) == ["piece"]
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            assert await asked(path, "list", folder=folder) == ["piece"]
        assert await asked(path, "list") is None
        assert len(os.listdir("/proc/self/fd")) <= before + 2  # connections that end now


@pytest.mark.parametrize(
    "sent",
    [b"", b"\n", b"{\n", b"[]\n", b'"double"\n', b'{"with": {}}\n', b"\xff\n", b"x" * admin.LINE_BYTES, b"[" * 60_000],
    ids=["nothing", "empty", "half", "list", "text", "no do", "no UTF-8", "too long", "too deep"],
)
async def test_what_is_no_question_is_told_so(tmp_path: Path, sent: bytes) -> None:
    async with served(tmp_path / "admin.sock"):
        assert await raw(tmp_path / "admin.sock", sent) == b'{"refused": "expected a request of one JSON line"}\n'


@pytest.mark.parametrize("sent", [b'{"do": 5}\n', b'{"do": ["double"]}\n', b'{"do": "double", "with": [1]}\n'])
async def test_a_question_of_another_shape_is_refused(tmp_path: Path, sent: bytes) -> None:
    async with served(tmp_path / "admin.sock"):
        assert b"is not available" in await raw(tmp_path / "admin.sock", sent)


async def test_who_says_nothing_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "ASK_S", 0.05)
    async with served(tmp_path / "admin.sock"):
        assert await raw(tmp_path / "admin.sock", b"", end=False) == b""


async def test_one_too_many_waits_until_another_has_left(tmp_path: Path) -> None:
    path, answers = tmp_path / "admin.sock", list[Any]()
    async with served(path), trio.open_nursery() as nursery:
        silent = [await trio.open_unix_socket(str(path)) for _ in range(admin.CONNECTIONS)]

        async def wait() -> None:
            answers.append(await asked(path, "double", {"number": 1}))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert answers == []
        await silent[0].aclose()
        await until(lambda: answers == [{"twice": 2}])
        for stream in silent[1:]:
            await stream.aclose()


@pytest.mark.parametrize("left", ["nothing", "a socket nobody listens at", "no folder"])
def test_without_a_box_the_next_step_is_told(tmp_path: Path, left: str) -> None:
    path = tmp_path / ("there" if left != "no folder" else "gone/there")
    if left.startswith("a socket"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    with pytest.raises(AdminSilent, match="is the box running"):
        ask(path, "double")


async def test_a_box_that_closes_without_an_answer_is_told(tmp_path: Path) -> None:
    listener = open_socket(tmp_path / "admin.sock", mode=0o600, backlog=1)

    def close_one() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, close_one)
        with pytest.raises(AdminSilent, match="the box closed the connection"):
            await asked(tmp_path / "admin.sock", "double")
    listener.close()


async def test_a_socket_left_behind_is_replaced_and_one_that_cannot_be_opened_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "admin.sock"
    open_socket(path, mode=0o600, backlog=1).close()
    async with served(path):
        assert await asked(path, "double", {"number": 2}) == {"twice": 4}
    (tmp_path / "file").touch()
    async with served(tmp_path / "file" / "admin.sock"):
        assert "event=no_admin_socket" in caplog.text


async def test_a_path_longer_than_an_address_works(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / ("e" * 100) / "admin.sock"
    async with served(path):
        assert await asked(path, "double", {"number": 3}) == {"twice": 6}
