"""What cannot be opened for those who look in does not keep the box from serving."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from appliance.__main__ import main
from appliance.health.conditions import Condition
from appliance.observation import _open_port, _open_socket
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
            code = main(["status", "--json", "--data", str(box.data)])
            told = json.loads(capsys.readouterr().out)["reasons"]
            (reason,) = [each for each in told if each["id"] == "port_closed:metrics.port"]
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
