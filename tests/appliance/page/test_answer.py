"""Who gets an answer of the page, over plain HTTP: names, tokens, origins, methods, limits; and what it costs."""

from __future__ import annotations

import re
import socket
import stat
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError

import psutil
import pytest
import trio

from appliance.__main__ import main
from appliance.access.page_token import read_token
from netstack.serving.channel import open_channel
from netstack.web.http import host_is_known
from tests.appliance.box import connected, pull, running_box, send
from tests.appliance.metrics.test_gather import fetched
from tests.ports import apache_port, free_port
from tests.waiting import until_it

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8087", "127.0.0.1:8087", "[::1]:8087", "192.168.7.2", "press"]
)
def test_addresses_and_own_names_are_known(host: str) -> None:
    assert host_is_known(host, {"press"})


@pytest.mark.parametrize(
    "host", ["", "evil.example", "press.evil.example", "127.0.0.1.evil.example:80", "[::1", "press@x"]
)
def test_any_other_name_is_refused_since_somebody_may_point_it_here(host: str) -> None:
    assert not host_is_known(host, {"press"})


async def raw(port: int, data: bytes) -> bytes:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(data)
        with trio.fail_after(25):
            return b"".join([part async for part in stream])


def question(path: str, *lines: str, method: str = "GET", body: str = "") -> bytes:
    given = ["Host: localhost", "Connection: close", f"Content-Length: {len(body)}", *lines]
    return (
        f"{method} {path} HTTP/1.1\r\n{chr(13) + chr(10)}".replace("\r\n\r\n", "\r\n").encode()
        + ("\r\n".join(given) + "\r\n\r\n" + body).encode()
    )


async def test_a_foreign_name_a_foreign_origin_and_a_missing_token_get_nothing(tmp_path: Path) -> None:
    port = free_port()
    async with running_box(tmp_path, f"[page]\nport = {port}\n") as box, connected(box) as channel:
        await channel.ask(send("Engine"), timeout_s=5)
        url = f"http://127.0.0.1:{port}"
        assert (await fetched(url + "/", host="rebound.example"))[0] == 421
        assert "Engine" in (await fetched(url + "/"))[1]
        assert (await fetched(url + "/nothing"))[0] == 404
        assert (await fetched(url + "/", method="PUT"))[0] == 405
        assert b" 401 " in await raw(port, question("/uplink", method="POST", body="do=pause"))
        token = await trio.to_thread.run_sync(read_token, tmp_path)
        assert stat.S_IMODE((tmp_path / "page.token").stat().st_mode) == 0o600
        bearer = f"Authorization: Bearer {token}"
        foreign = question("/uplink", bearer, "Origin: http://evil.example", method="POST", body="do=pause")
        assert b" 403 " in await raw(port, foreign)
        cross = question("/uplink", bearer, "Sec-Fetch-Site: cross-site", method="POST", body="do=pause")
        assert b" 403 " in await raw(port, cross)
        assert b" 400 " in await raw(port, question("/uplink", bearer, method="POST", body="do=pause"))  # no uplink


async def test_headers_and_forms_that_no_browser_sends_are_refused_and_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    async with running_box(tmp_path, f"[page]\nport = {port}\n") as box, connected(box) as channel:
        cookie = question("/uplink", "Cookie: rocketbox=ü", method="POST", body="do=pause")
        assert b" 401 " in await raw(port, cookie)
        assert b" 403 " in await raw(port, question("/login", "Origin: http://[", method="POST", body="token=x"))
        assert b" 401 " in await raw(port, question("/login", method="POST", body="token=x&" + "a=1&" * 20))
        await channel.ask(send("Engine", b'"\\ud83d"', queue_id=0), timeout_s=5)
        listed = (await raw(port, question("/messages?topic=Engine"))).decode()
        (place,) = set(re.findall(r"/message\?at=(\w+)", listed))
        assert "ud83d" in (await raw(port, question(f"/message?at={place}"))).decode()
    assert "event=page_failed" not in caplog.text


async def test_every_page_forbids_whatever_is_not_its_own(tmp_path: Path) -> None:
    port = free_port()
    async with running_box(tmp_path, f"[page]\nport = {port}\n"):
        for path in ("/", "/now", "/messages", "/topic?name=nothing", "/message?at=zz"):
            head = (await raw(port, question(path))).partition(b"\r\n\r\n")[0].decode()
            policy = next(line for line in head.splitlines() if line.startswith("Content-Security-Policy"))
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy


async def test_garbage_large_and_slow_requests_end_and_the_box_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    async with running_box(tmp_path, f"[page]\nport = {port}\n") as box:
        assert (await raw(port, b"\x00\x01\x02 garbage\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert b" 413 " in await raw(port, question("/login", method="POST", body="x" * 20_000))
        assert (await raw(port, b"GET / HTTP/1.1\r\nX: " + b"y" * 40_000)).startswith(b"HTTP/1.1 431")
        assert b" 414 " in await raw(port, question("/" + "z" * 5000))
        with monkeypatch.context() as impatient:
            impatient.setattr("netstack.web.http.IDLE_S", 0.5)
            assert await raw(port, b"GET / HT") == b""  # never finished
        many = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(40)]
        async with connected(box) as channel:
            assert (await channel.ask(send("Engine"), timeout_s=5)).code == 0
        for stream in many:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
            await stream.aclose()

        async def answers() -> bool:  # until the many have left, one more is closed at once
            with suppress(URLError, ConnectionError):
                return (await fetched(f"http://127.0.0.1:{port}/health.json"))[0] == 200
            return False

        await until_it(answers)


MOST_BYTES = 17_800_000  # what looking in may add, OpenSSL and shutil with its compressors among it
OPTIONAL = (  # of looking in, keys' commands, support, tracing, the uplink: none of it is in a box that is not asked
    *("h11", "jinja2", "markupsafe", "prometheus_client", "yaml", "opentelemetry", "cbor2", "zstandard", "serial"),
    *(
        "netstack.web.http",
        "appliance.page",
        "appliance.metrics.gather",
        "appliance.metrics.machine",
        "appliance.health.disk_wear",
    ),
    *(
        "appliance.support",
        "appliance.replication",
        "appliance.access.certificate",
        "appliance.access.apache_acl",
        "appliance.broker.admin.accounts",
    ),
    *("appliance.health.doctor", "netstack.client", "psutil", "uplink_spark.config", "uplink_spark.box.shipper"),
)


def started(folder: Path, file: Path) -> tuple[subprocess.Popen[str], int]:
    """Return a running `serve` that notes what it loads, and its broker's port."""
    words = ["serve", "--config", str(file), "--data", str(folder), "--namesrv-port", "0", "--broker-port", "0"]
    command = [sys.executable, "-X", "importtime", "-m", "appliance", *words]
    with (folder / "loaded").open("w") as noted:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=noted, text=True)
    assert process.stdout is not None
    found = next(filter(None, (re.search(r"broker=\S*:(\d+)", line) for line in process.stdout)))
    return process, int(found[1])


def loaded_by(process: subprocess.Popen[str], folder: Path) -> set[str]:
    """Stop a program and return all modules it has loaded."""
    process.terminate()
    process.communicate(timeout=60)
    lines = (folder / "loaded").read_text().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


async def traffic(port: int) -> None:
    async with open_channel("127.0.0.1", port) as channel:
        for _ in range(200):
            assert (await channel.ask(send("Engine"), timeout_s=5)).code == 0
        assert (await channel.ask(pull("Engine"), timeout_s=5)).code == 0


async def test_a_box_loads_nothing_of_what_is_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "rocketbox.toml"
    file.touch()
    process, port = await trio.to_thread.run_sync(started, tmp_path, file)
    try:
        await traffic(port)
    finally:
        seen = await trio.to_thread.run_sync(loaded_by, process, tmp_path)
    assert "appliance.serve" in seen
    assert seen.intersection(OPTIONAL) == set()


async def test_page_and_metrics_load_what_they_need_when_asked_and_keep_to_their_memory(tmp_path: Path) -> None:
    file, ports = tmp_path / "rocketbox.toml", {"page": free_port(), "metrics": free_port()}
    file.write_text("[page]\nport = {page}\n[metrics]\nport = {metrics}\n".format(**ports))
    process, port = await trio.to_thread.run_sync(started, tmp_path, file)
    try:
        await traffic(port)
        loaded_before, before = (tmp_path / "loaded").read_text(), psutil.Process(process.pid).memory_info().rss
        for _ in range(10):
            assert (await fetched(f"http://127.0.0.1:{ports['metrics']}/metrics"))[0] == 200
            assert (await fetched(f"http://127.0.0.1:{ports['page']}/"))[0] == 200
        grown = psutil.Process(process.pid).memory_info().rss - before
    finally:
        seen = await trio.to_thread.run_sync(loaded_by, process, tmp_path)
    assert {"jinja2", "h11", "prometheus_client"} <= seen
    assert [name for name in ("jinja2", "h11", "prometheus_client", "netstack.web.http") if name in loaded_before] == []
    assert grown < MOST_BYTES


def test_the_command_prints_address_and_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rocketbox.toml"
    file.write_text("[page]\nport = 8087\n")
    words = ["page", "--config", str(file), "--data", str(tmp_path)]
    assert main([*words, "--token"]) == 0
    first = capsys.readouterr().out
    assert "http://localhost:8087/" in first
    assert main([*words, "--new-token"]) == 0
    assert first.splitlines()[-1] != capsys.readouterr().out.splitlines()[-1]
    file.write_text("")
    assert main(words) == 0
    assert capsys.readouterr().out == f"off: set page.port in {file} and restart the box\n"
    assert main(["page", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "off: no configuration file: pass that of the box with --config FILE\n"


async def test_the_page_shows_replication_on_either_side(tmp_path: Path) -> None:
    port = free_port()
    page = f"[page]\nport = {port}\n"
    master = f'{page}[replication]\nrole = "master"\n'
    async with running_box(tmp_path / "a", master, broker_port=apache_port()) as box, connected(box) as channel:
        await channel.ask(send("T", b"x" * 5000), timeout_s=5)
        assert "none is connected" in (await fetched(f"http://127.0.0.1:{port}/"))[1]
        async with await trio.open_tcp_stream("127.0.0.1", box.broker_port + 1) as slave:
            await slave.send_all(bytes(8))
            await slave.receive_some(1)
            assert " KiB behind" in (await fetched(f"http://127.0.0.1:{port}/"))[1]
    slave_of_nobody = f'{page}[replication]\nrole = "slave"\nmaster = "127.0.0.1:{apache_port()}"\n'
    async with running_box(tmp_path / "b", slave_of_nobody, broker_port=apache_port()):

        async def told() -> bool:
            text = (await fetched(f"http://127.0.0.1:{port}/"))[1]
            return "not connected" in text and "all attempts to connect" in text

        await until_it(told)
