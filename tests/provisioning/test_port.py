import os
import pty
import tty
from pathlib import Path

import pytest
import trio

from provisioning.errors import LinkLost, ProvisioningError
from provisioning.port import holders, open_line, pty_pair, serve_socket


async def code_of(name: str) -> str:
    with pytest.raises(ProvisioningError) as caught:
        await open_line(name)
    return caught.value.code


async def test_a_port_is_ours_alone_and_a_second_program_is_told_who_has_it() -> None:
    box, name = pty_pair()
    line = await open_line(name)
    with pytest.raises(ProvisioningError, match=f"{name} is in use") as caught:
        await open_line(name)
    assert caught.value.code == "E103"
    await line.aclose()
    await (await open_line(name)).aclose()
    await box.aclose()


async def test_a_port_that_is_not_there_is_e101(tmp_path: Path) -> None:
    assert await code_of(str(tmp_path / "ttyUSB9")) == "E101"
    assert await code_of("socket://127.0.0.1:1") == "E101"
    assert await code_of("socket://nonsense") == "E101"
    for name, said in (
        (str(tmp_path / "ttyUSB9"), "ttyUSB9; there is "),
        ("socket://host", "write socket://HOST:PORT"),
        ("/dev/null", "/dev/null is not a serial port"),
        (str(tmp_path), "cannot be opened: Is a directory"),
    ):
        with pytest.raises(ProvisioningError, match=said):
            await open_line(name)


async def test_bytes_of_every_value_pass_a_raw_line_both_ways() -> None:
    box, name = pty_pair()
    line = await open_line(name, baud=921600)
    every = bytes(range(256)) * 8
    await line.send(every)
    got = b""
    while len(got) < len(every):
        got += await box.receive()
    assert got == every
    await box.send(b"\r\n\x03\x11\x13")
    assert await line.receive() == b"\r\n\x03\x11\x13"
    await line.set_baud(115200)
    assert line.baud == 115200
    await line.aclose()
    await box.aclose()


async def test_the_end_of_the_other_side_is_a_lost_link() -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    line = await open_line(os.ttyname(theirs))
    os.close(theirs)
    os.close(ours)
    with pytest.raises(LinkLost):
        await line.receive()
    with pytest.raises(LinkLost):
        await line.send(b"x")
    await line.aclose()
    with pytest.raises(LinkLost):
        await line.receive()


async def test_a_socket_is_a_line_too() -> None:
    listener, name = await serve_socket()
    line = await open_line(name)
    server = await listener.accept()
    await line.send(b"hello")
    assert await server.receive_some() == b"hello"
    await server.send_all(b"box")
    assert await line.receive() == b"box"
    await server.aclose()
    with pytest.raises(LinkLost):
        await line.receive()
    await line.aclose()
    await listener.aclose()


async def test_a_closed_line_wakes_its_reader() -> None:
    box, name = pty_pair()
    line = await open_line(name)

    async def read() -> None:
        with pytest.raises((LinkLost, trio.ClosedResourceError)):
            await line.receive()

    with trio.fail_after(25):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            await line.aclose()
    await box.aclose()


def test_holders_finds_nobody_for_a_file_nobody_has(tmp_path: Path) -> None:
    assert list(holders(str(tmp_path / "x"))) == []
