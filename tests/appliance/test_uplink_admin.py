"""`rocketbox uplink ...` against a running box and a running gateway, over the box's own socket."""

import json
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
import trio

from appliance.__main__ import main
from appliance.admin import AdminRefused, AdminSilent, ask
from appliance.uplink_admin import stick_secret
from tests.appliance.box import connected, running_box, send
from uplink_spark.centre.sweep import sweep_box
from uplink_spark.centre.zone_files.landing import open_zone
from uplink_spark.commands.gateway import now_ms
from uplink_spark.testing_site import gateway

pytestmark = pytest.mark.slow
Capture = pytest.CaptureFixture[str]


async def rocketbox(data: Path, *words: str) -> int:
    """Run the command in a thread beside the box."""
    return await trio.to_thread.run_sync(main, ["uplink", *words, "--data", str(data)])


async def answer(data: Path, capsys: Capture, *words: str) -> object:
    code = await rocketbox(data, *words, "--json")
    assert code in (0, 10)
    return json.loads(capsys.readouterr().out)


async def rows(data: Path, capsys: Capture, *words: str) -> list[dict[str, object]]:
    found = await answer(data, capsys, *words)
    assert isinstance(found, list)
    return found


async def until(data: Path, capsys: Capture, holds: Callable[[dict[str, object]], object]) -> None:
    with trio.fail_after(25):
        while True:
            status = await answer(data, capsys, "status")
            assert isinstance(status, dict)
            if holds(status):
                return
            await trio.sleep(0.02)


def uplink(port: int) -> str:
    return f"[uplink]\ngateway = '127.0.0.1:{port}'\nmax_delay_s = 1\n"


async def test_ship_now_without_a_gateway_says_that_nothing_leaves_yet_and_why(tmp_path: Path, capsys: Capture) -> None:
    async with running_box(tmp_path, uplink(1), "box-17") as box, connected(box) as channel:
        assert (await channel.ask(send("T"), timeout_s=5)).code == 0
        await until(tmp_path, capsys, lambda status: status["last_error"])
        assert await rocketbox(tmp_path, "ship-now") == 0
        told = capsys.readouterr().out
        assert "leave once the gateway answers; last error: 127.0.0.1:1: cannot connect: Connection refused" in told
        assert "`rocketbox uplink test` tries each step" in told


async def test_a_box_says_pauses_ships_and_shows_its_receipts(tmp_path: Path, capsys: Capture) -> None:
    async with gateway(tmp_path / "landing") as port, running_box(tmp_path, uplink(port), "box-17") as box:
        assert stat.S_IMODE((tmp_path / "run/admin.sock").stat().st_mode) == 0o600
        async with connected(box) as channel:
            assert (await channel.ask(send("T"), timeout_s=5)).code == 0
            assert await rocketbox(tmp_path, "ship-now") == 0
            capsys.readouterr()
            await until(tmp_path, capsys, lambda status: status["receipted_bytes"] and not status["unshipped_bytes"])
            assert await rocketbox(tmp_path, "status") == 0
            assert f"connected to 127.0.0.1:{port}" in capsys.readouterr().out
            (receipt, *_) = await rows(tmp_path, capsys, "receipts")
            assert receipt["kind"] == "log"
            assert receipt["from"] == 0
            assert await rocketbox(tmp_path, "test") == 0
            assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
                ["connect", "ok"], ["tls", "ok"], ["hello", "ok"],
            ]  # fmt: skip
            assert await rocketbox(tmp_path, "pause") == 0
            assert await rocketbox(tmp_path, "ship-now") == 1
            assert "paused" in capsys.readouterr().err
            await channel.ask(send("T"), timeout_s=5)
            await until(tmp_path, capsys, lambda status: status["paused"] and status["unshipped_bytes"])
            assert await rocketbox(tmp_path, "resume") == 0
            capsys.readouterr()
            await until(tmp_path, capsys, lambda status: not status["unshipped_bytes"])


async def test_a_box_without_a_centre_goes_by_stick_or_discards(tmp_path: Path, capsys: Capture) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    stick.mkdir()
    open_zone(landing)
    async with running_box(tmp_path, uplink(1), "box-17") as box:
        async with connected(box) as channel:
            await channel.ask(send("T"), timeout_s=5)
            exported = await answer(tmp_path, capsys, "export", "--to", str(stick))
            identity = await answer(tmp_path, capsys, "identity", "--secret")
            assert isinstance(exported, dict)
            assert isinstance(identity, dict)
            secret = bytes.fromhex(str(identity["secret"]))
            sweep = partial(sweep_box, landing, stick / "box-17", secret=secret, now_ms=now_ms)
            assert (await trio.to_thread.run_sync(sweep)).new == 1
            assert await answer(tmp_path, capsys, "import", str(stick)) == {"bytes": exported["durable"]}
            await channel.ask(send("T"), timeout_s=5)
        where = ["discard", "--before", str(1 << 40), "--reason", "scrapped"]
        assert await rocketbox(tmp_path, *where) == 1
        assert "--yes" in capsys.readouterr().err
        assert await rocketbox(tmp_path, *where, "--yes") == 0
        assert "missing, operator" in capsys.readouterr().out
        (gap,) = await rows(tmp_path, capsys, "gaps")
        assert (gap["from"], gap["receipted"]) == (exported["durable"], False)
        assert await rocketbox(tmp_path, "import", str(tmp_path / "nowhere")) == 1
        assert "is the stick mounted?" in capsys.readouterr().err


async def test_a_box_without_an_uplink_and_a_box_that_is_off_say_so(tmp_path: Path, capsys: Capture) -> None:
    async with running_box(tmp_path) as box:
        assert await rocketbox(tmp_path, "status") == 1
        assert "uplink is disabled; set uplink.gateway" in capsys.readouterr().err
        for nonsense in ("uplink.format", ""):
            with pytest.raises(AdminRefused):
                await trio.to_thread.run_sync(ask, box.data / "run/admin.sock", nonsense)
    with pytest.raises(AdminSilent, match="is the box running"):
        ask(tmp_path / "run/admin.sock", "uplink.status")


async def refused(data: Path, do: str, values: Mapping[str, object], folder: Path | None = None) -> str:
    with pytest.raises(AdminRefused) as caught:
        await trio.to_thread.run_sync(partial(ask, data / "run/admin.sock", do, values, folder=folder))
    return str(caught.value)


async def test_what_cannot_be_done_is_refused_with_the_reason_and_the_box_goes_on(tmp_path: Path) -> None:
    stick, secret = tmp_path / "stick", tmp_path / "uplink.secret"
    stick.mkdir()
    async with running_box(tmp_path, uplink(1), "box-17") as box, connected(box) as channel:
        for before, reason in ((None, None), (-1, "x"), ("7", "x"), (7, " ")):
            values = {"before": before, "reason": reason}
            assert await refused(tmp_path, "uplink.discard", values) == "discard needs a log offset and a reason"
        assert await refused(tmp_path, "uplink.export", {}) == "no folder was passed"
        secret.write_text("no hex")
        assert "is not a secret in hex: restore it" in await refused(tmp_path, "uplink.export", {}, stick)
        secret.unlink()
        assert "has the stick been swept?" in await refused(tmp_path, "uplink.import", {}, stick)
        assert (await channel.ask(send("T"), timeout_s=5)).code == 0


def test_the_secret_is_made_once_for_the_box_alone_whatever_lay_there(tmp_path: Path) -> None:
    path = tmp_path / "uplink.secret"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "uplink.secret.tmp").symlink_to(elsewhere)
    made = stick_secret(path)
    assert stick_secret(path) == made == bytes.fromhex(path.read_text())
    assert (stat.S_IMODE(path.stat().st_mode), elsewhere.read_text()) == (0o600, "mine")
