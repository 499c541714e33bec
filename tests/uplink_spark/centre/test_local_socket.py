"""The local door: open while the gateway runs, for its owner alone, whatever a dead gateway left there."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
import trio

from uplink_spark.centre.local_socket import NAME, doors, knock, open_door


async def answers(root: Path) -> bool:
    stream = await knock(root)
    if stream is None:
        return False
    await stream.aclose()
    return True


async def test_the_door_is_there_while_the_gateway_runs_and_for_its_owner_alone(tmp_path: Path) -> None:
    assert not await answers(tmp_path)
    async with open_door(tmp_path) as listeners:
        assert len(listeners) == 1
        assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
        stream = await knock(tmp_path)
        assert stream is not None
        accepted = await listeners[0].accept()
        await stream.send_all(b"x")
        assert await accepted.receive_some() == b"x"
        await stream.aclose()
        await accepted.aclose()
    assert not (tmp_path / NAME).exists()
    assert not await answers(tmp_path)


async def test_several_gateways_have_a_socket_each(tmp_path: Path) -> None:
    async with open_door(tmp_path, "gateway-1.sock"), open_door(tmp_path, "gateway-2.sock"):
        assert doors(tmp_path) == ["gateway-1.sock", "gateway-2.sock"]
        stream = await knock(tmp_path, "gateway-2.sock")
        assert stream is not None
        await stream.aclose()
    assert doors(tmp_path) == []


async def test_a_socket_of_a_gateway_that_died_is_replaced_and_answers_nobody_before(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_PATH)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(f"/proc/self/fd/{folder}/{NAME}")  # however deep the folder lies
    dead.close()
    os.close(folder)
    assert (tmp_path / NAME).exists()
    assert not await answers(tmp_path)
    async with open_door(tmp_path) as listeners:
        assert listeners
        assert await answers(tmp_path)


async def test_the_path_of_a_zone_may_be_longer_than_the_address_of_a_socket(tmp_path: Path) -> None:
    root = tmp_path / ("d" * 120) / ("e" * 120)
    root.mkdir(parents=True)
    async with open_door(root) as listeners:
        assert listeners
        assert await answers(root)


async def test_a_zone_without_room_for_a_door_costs_the_door_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).mkdir()
    async with open_door(tmp_path) as listeners:
        assert listeners == []
    assert (tmp_path / NAME).is_dir()
    assert "no local socket for sweeps" in caplog.text
    assert "stop the gateway to sweep" in caplog.text


async def test_the_door_is_closed_when_the_gateway_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        async with open_door(tmp_path):
            raise RuntimeError
    assert not (tmp_path / NAME).exists()
    with trio.fail_after(25):
        async with open_door(tmp_path) as listeners:
            assert listeners
