"""What cannot be opened for those who look in does not keep the box from serving."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from appliance.__main__ import main
from appliance.broker.access.permissions import Permissions
from appliance.health.conditions import Condition
from appliance.metrics.gather import Gatherer
from appliance.observation import _open_port, _open_socket
from appliance.page.answer import Page
from netstack.web.http import Request, Response
from tests.appliance.box import running_box
from tests.interop.box import Box
from tests.ports import free_port


async def test_what_cannot_be_opened_is_told_and_the_box_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert _open_socket(tmp_path / "file" / "metrics.sock") is None
    assert "event=no_metrics_socket" in caplog.text
    opened = _open_socket(tmp_path / "metrics.sock")
    assert opened is not None
    assert (tmp_path / "metrics.sock").stat().st_mode & 0o777 == 0o660
    await opened.aclose()


@pytest.mark.slow
def test_a_port_that_is_taken_is_a_condition_with_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        box = Box(tmp_path / "data", config=f"[metrics]\nhost = '127.0.0.1'\nport = {port}\n")
        box.start()
        try:
            code, reasons, until = (
                0,
                list[dict[str, str]](),
                time.monotonic() + 30,
            )  # it is told with the first look at conditions
            while not reasons and time.monotonic() < until:
                time.sleep(0.1)
                code = main(["status", "--json", "--data", str(box.data)])
                told = json.loads(capsys.readouterr().out)["reasons"]
                reasons = [each for each in told if each["id"] == "port_closed:metrics.port"]
            (reason,) = reasons
            main(["doctor", "--data", str(box.data)])
            doctor = capsys.readouterr().out
        finally:
            assert box.stop() == 0
    assert (code, reason["state"], reason["code"]) == (1, "degraded", "D302")
    assert reason["text"] == f"no metrics port: port {port} on 127.0.0.1 is taken by another program"
    assert f"'sport = :{port}'` names it) or choose another metrics.port" in reason["next"]
    assert reason["text"] in doctor


async def test_an_address_that_is_not_here_is_told_with_the_key_to_correct() -> None:
    closed = list[Condition]()
    assert await _open_port("192.0.2.1", free_port(), "page.port", closed) == []
    assert (closed[0].key, closed[0].next) == (
        "port_closed:page.port",
        "correct page.host or page.port, then restart the box",
    )


async def test_page_and_metrics_take_connections_from_the_addresses_of_the_other_ports_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, metrics = free_port(), free_port()
    toml = f"[page]\nport = {page}\n[metrics]\nport = {metrics}\n"
    question = b"GET /health.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answers = [True]
    monkeypatch.setattr(Permissions, "admits", lambda self, address: answers[-1])
    async with running_box(tmp_path, toml, listen="host = '0.0.0.0'"):
        for admitted, port in ((True, page), (False, page), (False, metrics)):
            answers.append(admitted)
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(question)
                got = b""
                with suppress(trio.BrokenResourceError):
                    got = bytes(await stream.receive_some(65536))
                assert got.startswith(b"HTTP/1.1 200") == admitted


async def test_what_is_looked_at_is_made_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, metrics, under_way, most = free_port(), free_port(), 0, 0

    async def made(*_: object) -> bytes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await trio.sleep(0.01)
        under_way -= 1
        return b"made"

    async def asked(port: int, path: str) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode())
            assert b"made" in b"".join([bytes(part) async for part in stream])

    async def shown(self: Page, request: Request) -> Response:
        return Response(200, await made())

    monkeypatch.setattr(Gatherer, "text", made)
    monkeypatch.setattr(Page, "_health", shown)
    async with running_box(tmp_path, f"[page]\nport = {page}\n[metrics]\nport = {metrics}\n"):
        for port, path in ((metrics, "/metrics"), (page, "/health.json")):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(asked, port, path)
    assert (most, under_way) == (1, 0)
