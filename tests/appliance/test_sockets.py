"""Listening sockets: taken only by whom they are meant for, opened whole or not at all."""

import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from appliance import sockets
from appliance.errors import ConfigError, PortTaken
from appliance.sockets import check_ports, open_port, port_of, take_over, unit_ports


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen()
        yield made


@pytest.mark.parametrize(
    ("count", "pid"), [("", "7"), ("1", "8"), ("1", ""), ("x", "7"), ("-1", "7"), ("0", "7"), ("²", "7")]
)
def test_descriptors_meant_for_nobody_or_another_process_are_left_alone(count: str, pid: str) -> None:
    environ = {"LISTEN_FDS": count, "LISTEN_PID": pid, "LISTEN_FDNAMES": "broker", "HOME": "/"}
    assert take_over(environ, 7) == {}
    assert environ == {"HOME": "/"}  # a program it starts must not take them for its own


async def test_descriptors_are_taken_by_name_and_not_inherited(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = os.dup(listening.fileno())
    os.set_inheritable(twin, True)
    monkeypatch.setattr(sockets, "FIRST_DESCRIPTOR", twin)
    taken = take_over({"LISTEN_FDS": "1", "LISTEN_PID": "7", "LISTEN_FDNAMES": "broker"}, 7)
    assert list(taken) == ["broker"]
    assert port_of(taken["broker"]) == listening.getsockname()[1]
    assert not os.get_inheritable(twin)
    with pytest.raises(ConfigError, match=r"is opened by rocketbox-broker.socket: change ListenStream="):
        check_ports(taken, {"broker": ("listen.broker_port", 1)})
    check_ports(taken, {"broker": ("listen.broker_port", 0)})  # any port will do
    check_ports(taken, {"broker": ("listen.broker_port", port_of(taken["broker"]))})
    check_ports(taken, {})
    for listener in taken["broker"]:
        await listener.aclose()


async def test_a_taken_port_is_named_with_its_key_and_nothing_stays_open(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    gc.collect()  # what earlier tests left open closes now, not in between
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(PortTaken) as raised:
        await open_port("127.0.0.1", port, "listen.broker_port")
    assert "listen.broker_port" in str(raised.value)
    assert str(port) in str(raised.value)
    assert set(os.listdir("/proc/self/fd")) <= before


async def test_an_address_of_another_machine_and_a_name_of_none_are_told_apart() -> None:
    with pytest.raises(ConfigError, match="this machine has no such address"):
        await open_port("192.0.2.7", 0, "listen.broker_port")
    with pytest.raises(ConfigError, match="no such address"):
        await open_port("nowhere.invalid", 0, "listen.broker_port")


async def test_the_open_address_of_ipv6_takes_ipv4_too() -> None:
    try:
        listeners = await open_port("::", 0, "k")
    except ConfigError:
        pytest.skip("no IPv6 on this machine")
    async with await trio.open_tcp_stream("127.0.0.1", port_of(listeners)) as stream:
        accepted = await listeners[0].accept()
        await accepted.aclose()
        assert await stream.receive_some() == b""
    for listener in listeners:
        await listener.aclose()


def test_the_ports_of_the_units_are_those_that_systemd_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "systemctl"
    program.write_text('#!/bin/sh\n[ "$4" = rocketbox-broker.socket ] && echo "[::]:10911 (Stream)"\necho\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert unit_ports() == {"broker": 10911}
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert unit_ports() == {}
