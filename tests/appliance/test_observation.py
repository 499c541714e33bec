"""What cannot be opened for those who look in does not keep the box from serving."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from appliance.observation import _open_port, _open_socket


async def test_what_cannot_be_opened_is_told_and_the_box_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert _open_socket(tmp_path / "file" / "metrics.sock") is None
    assert "event=no_metrics_socket" in caplog.text
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert await _open_port("127.0.0.1", taken.getsockname()[1], "page.port") == []
    assert "event=port_not_opened key=page.port" in caplog.text
    opened = _open_socket(tmp_path / "metrics.sock")
    assert opened is not None
    assert (tmp_path / "metrics.sock").stat().st_mode & 0o777 == 0o660
    await opened.aclose()
