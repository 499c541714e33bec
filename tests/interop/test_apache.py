"""Starting Apache's own programs: taken ports are left to their owner, a failure tells its cause."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop import apache, jars
from tests.interop.apache import Part
from tests.ports import apache_port

pytestmark = pytest.mark.slow


def namesrv(folder: Path) -> Part:
    try:
        command = apache._command("4.9.7", folder, ("namesrv",))
    except jars.Unavailable as error:
        pytest.skip(str(error))
    return Part("namesrv", [*command, "-Xmx256m", "org.apache.rocketmq.namesrv.NamesrvStartup"], folder)


def test_a_port_that_was_taken_meanwhile_is_left_to_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, free = namesrv(tmp_path / "home"), apache_port()
    with socket.create_server(("", 0)) as taken:
        ports = [taken.getsockname()[1], free]
        monkeypatch.setattr(apache, "apache_port", lambda: ports.pop(0))
        with apache.started(part) as (process, port):
            assert (process.poll(), port, ports) == (None, free, [])


def test_ports_that_are_always_taken_end_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = namesrv(tmp_path / "home")
    monkeypatch.setattr(apache, "TRIES", 1)
    with socket.create_server(("", 0)) as taken:
        monkeypatch.setattr(apache, "apache_port", lambda: taken.getsockname()[1])
        with pytest.raises(apache.PortTaken, match=r"ended with 255 instead of starting: .*Address already in use"):
            apache._boot_somewhere(part)


def test_an_end_and_a_hang_are_told_apart_with_what_the_program_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = namesrv(tmp_path / "home")
    with pytest.raises(
        jars.Unavailable, match=r"ended with 1 instead of starting: Error: Could not find .*NoSuchClass"
    ):
        apache._boot_somewhere(replace(part, command=[*part.command[:-1], "NoSuchClass"]))
    monkeypatch.setattr(apache, "BOOT_S", 0)
    with pytest.raises(jars.Unavailable, match="does not serve after 0 s: it said nothing"):
        apache._boot_somewhere(part)


def test_a_cause_is_where_exceptions_begin_and_not_where_their_traces_end() -> None:
    trace = "hint\njava.lang.IllegalStateException: no\n\tat a.Exception.b(C.java)\nCaused by: java.io.IOException: x\n"
    assert apache.cause(trace + "\tat d.E\n" * 50) == (
        "java.lang.IllegalStateException: no | Caused by: java.io.IOException: x"
    )
    assert apache.cause("\nKilled\n") == "Killed"
