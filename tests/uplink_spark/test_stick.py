"""The stick: what is exported lands exactly, tampering is refused, twice is once, receipts come home."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from uplink_spark import testing_site
from uplink_spark.__main__ import main
from uplink_spark.commands.gateway import now_ms
from uplink_spark.landing import open_zone
from uplink_spark.reconcile import make_gap
from uplink_spark.stick import StickRefused, export_pieces, import_receipts, read_index
from uplink_spark.sweep import sweep_box
from uplink_spark.testing import landed_entries, landed_log
from uplink_spark.testing_site import MIB, box, fill, gateway, message, shipped, until

pytestmark = pytest.mark.slow
SECRET = bytes(range(32))


async def export(root: Path, stick: Path, count: int = 300) -> int:
    """A box that never reached the centre writes its log to a stick; returns its durable end."""
    async with box(root, 1) as (store, uplink):
        for number in range(count):
            store.put(message(number))
        await store.wait_durable(store.end)
        await uplink.shipper.state.in_thread(export_pieces, uplink.shipper.state, stick, SECRET, "zlib")
        return store.durable


async def sweep(landing: Path, stick: Path, secret: bytes | None = SECRET, name: str = "box-17") -> tuple[int, int]:
    open_zone(landing)
    work = partial(sweep_box, landing, stick / name, secret=secret, now_ms=now_ms)
    swept = await trio.to_thread.run_sync(work)
    return swept.pieces, swept.new


async def test_a_stick_lands_once_and_its_receipts_release_the_log(tmp_path: Path) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    durable = await export(tmp_path / "store", stick)
    assert await sweep(landing, stick) == (1, 1)
    assert await sweep(landing, stick) == (1, 0)
    assert len(landed_log(landing, "box-17")) == 300
    async with box(tmp_path / "store", 1) as (store, uplink):
        assert not uplink.may_release(0, durable)
        state = uplink.shipper.state
        taken = await state.in_thread(import_receipts, state, stick, SECRET, now_ms)
        assert taken == durable
        assert uplink.may_release(0, durable)
        store.put(message(300))
        await store.wait_durable(store.end)
    async with gateway(landing) as port, box(tmp_path / "store", port) as (store, uplink):
        await until(shipped(store, uplink))
        assert uplink.shipper.state.counts.repeat_bytes == 0
    assert len(landed_log(landing, "box-17")) == 301


@pytest.mark.parametrize("how", ["piece", "index", "missing", "other box", "wrong secret"])
async def test_a_stick_that_is_not_what_its_index_says_is_refused(tmp_path: Path, how: str) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    await export(tmp_path / "store", stick)
    (piece,) = stick.glob("box-17/*/*.piece")
    target = piece if how == "piece" else stick / "box-17" / "INDEX.mac"
    if how in ("piece", "index"):
        data = bytearray(target.read_bytes())
        data[len(data) // 2] ^= 1
        target.write_bytes(bytes(data))
    elif how == "missing":
        piece.unlink()
    elif how == "other box":
        shutil.move(stick / "box-17", stick / "box-18")
        with pytest.raises(StickRefused, match="the index is of box box-17"):
            await sweep(landing, stick, name="box-18")
        return
    with pytest.raises(StickRefused):
        await sweep(landing, stick, bytes(32) if how == "wrong secret" else SECRET)
    assert not list((landing / "pack").glob("*/*/*.pack")) if landing.exists() else True


async def command(arguments: list[str]) -> int:
    return await trio.to_thread.run_sync(main, arguments)


@pytest.mark.parametrize("connected", [False, True])
async def test_a_stick_is_swept_through_the_gateway_that_runs(tmp_path: Path, connected: bool) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    durable = await export(tmp_path / "store", stick)
    async with gateway(landing) as port:
        if connected:  # the box itself is faster: the stick has nothing new, and the box stays connected
            async with box(tmp_path / "store", port) as (store, uplink):
                await until(shipped(store, uplink))
                assert await sweep(landing, stick) == (1, 0)
                assert uplink.statistics().counts.connects == 1
        else:
            assert await sweep(landing, stick) == (1, 1)
            assert await sweep(landing, stick) == (1, 0)
        async with box(tmp_path / "store", port) as (store, uplink):
            await until(shipped(store, uplink))
            assert uplink.statistics().counts.raw_bytes == 0  # `have` told it
        if not connected:
            async with box(tmp_path / "store", 1) as (_, uplink):
                state = uplink.shipper.state
                assert await state.in_thread(import_receipts, state, stick, SECRET, now_ms) == durable
    assert len(landed_log(landing, "box-17")) == 300


async def test_what_the_gateway_refuses_of_a_stick_is_named_with_its_file(tmp_path: Path) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    await export(tmp_path / "store", stick)
    index = read_index(stick / "box-17", SECRET)
    others = replace(index, runs=((12345, 0),))
    (stick / "box-17" / "INDEX.mac").write_bytes(others.encode(SECRET))
    async with gateway(landing):
        with pytest.raises(StickRefused, match=r"\.piece: not_yours: run .* is not in HELLO"):
            await sweep(landing, stick)
    assert not list((landing / "pack").glob("*/*/*.pack"))


@pytest.mark.parametrize("left", ["nothing", "a socket of a gateway that died"])
async def test_without_a_gateway_the_sweep_is_the_writer(tmp_path: Path, left: str) -> None:
    stick, landing = tmp_path / "stick", tmp_path / ("landing" * 17)  # longer than the address of a local socket
    await export(tmp_path / "store", stick)
    async with gateway(landing):
        if left != "nothing":
            (landing / "gateway.sock").rename(landing / "kept")
    if left != "nothing":
        (landing / "kept").rename(landing / "gateway.sock")
    assert await sweep(landing, stick) == (1, 1)


async def test_a_file_system_without_sockets_costs_the_door_only(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "gateway.sock").mkdir()  # cannot be bound over
    (landing / "gateway.sock" / "x").touch()
    async with gateway(landing) as port, box(tmp_path / "store", port) as (store, uplink):
        store.put(message(1))
        await until(shipped(store, uplink))


async def test_the_sweep_command_wants_a_secret_or_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    await export(tmp_path / "store", stick)
    open_zone(landing)
    where = ["sweep", str(stick), "--landing", str(landing)]
    assert await command(where) == 10
    assert "or --trust box-17" in capsys.readouterr().err
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "box-17").write_text(SECRET.hex())
    assert await command([*where, "--secrets", str(secrets)]) == 0
    assert await command([*where, "--trust", "box-17"]) == 0
    assert "box-17: 1 pieces, 0 new" in capsys.readouterr().out


async def test_a_stick_carries_express_topics_and_declared_losses_and_brings_their_receipts(
    tmp_path: Path,
) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    async with box(tmp_path / "store", 1, express=("alarm",)) as (store, uplink):
        state = uplink.shipper.state
        await until(lambda: bool(state.ledger.switches))
        for number in range(60):
            store.put(message(number, topic="alarm" if number % 6 == 0 else "bulk"))
        await store.wait_durable(store.end)
        for number in range(2):
            state.ledger.declare(make_gap(state, 0, 0, ("rejected", "disk_full"), number))
        await state.in_thread(export_pieces, state, stick, SECRET, "zlib")
        assert await sweep(landing, stick) == (4, 4)
        assert not uplink.may_release(0, store.durable)
        assert await state.in_thread(import_receipts, state, stick, SECRET, now_ms) == store.durable
        assert uplink.may_release(0, store.durable)
        assert state.ledger.undelivered() == []
        again = await state.in_thread(export_pieces, state, tmp_path / "again", SECRET, "zlib")
        assert again.files == ()
    entries = landed_entries(landing, "box-17")
    assert sorted(entry.kind for entry in entries) == ["gap", "gap", "log", "pick"]
    assert [entry.skip for entry in entries if entry.kind == "log"] == [("alarm",)]
    assert [entry.records for entry in entries if entry.kind == "pick"] == [10]  # where readers take its rows from
    async with gateway(landing) as port, box(tmp_path / "store", port, express=("alarm",)) as (store, uplink):
        await until(lambda: uplink.statistics().connected)
        await until(shipped(store, uplink))
        assert uplink.statistics().counts.raw_bytes == 0  # `have` and `pick` told it


async def test_a_stick_tells_what_a_recovery_had_to_cover(tmp_path: Path) -> None:
    root, stick, landing = tmp_path / "data/store", tmp_path / "stick", tmp_path / "landing"
    async with box(root, 1) as (store, _):
        placed = [store.put(message(number)) for number in range(60)]
        await store.wait_durable(store.end)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as segment:
        segment.seek(placed[30].log_offset + 100)
        segment.write(b"scratch")
    (root / "rocketbox/position").unlink()
    await export(root, stick, 5)
    assert await sweep(landing, stick) == (4, 4)  # the loss, the log before and behind it, and of the next run
    (gap,) = [entry for entry in landed_entries(landing, "box-17") if entry.kind == "gap"]
    assert (gap.start, gap.end) == (placed[30].log_offset, placed[30].end)
    assert (gap.gap or {})["reason"] == "repair"
    assert len(landed_log(landing, "box-17")) == 60 - 1 + 5


async def test_a_stick_comes_home_although_the_oldest_of_its_log_has_gone_meanwhile(tmp_path: Path) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    async with box(tmp_path / "store", 1) as (store, uplink):
        state = uplink.shipper.state
        await fill(store, 7, MIB - 1000)
        await state.in_thread(export_pieces, state, stick, SECRET, "none")
        await sweep(landing, stick)
        await uplink.shipper.quota.discard(5 * MIB, "test")
        await store.drop_first()
        assert store.first == 5 * MIB
        taken = await state.in_thread(import_receipts, state, stick, SECRET, now_ms)
        assert taken == store.durable - store.first
        assert uplink.may_release(store.first, store.durable)


async def test_the_largest_pieces_of_a_stick_fit_a_gateways_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    large = testing_site.store_config(tmp_path / "store")._replace(segment_bytes=16 * MIB)
    monkeypatch.setattr(testing_site, "store_config", lambda root: large)
    async with box(tmp_path / "store", 1, piece_bytes=4 * MIB) as (store, uplink):
        state = uplink.shipper.state
        await fill(store, 40, MIB - 1000)
        await state.in_thread(export_pieces, state, stick, SECRET, "none")
        async with gateway(landing):
            assert await sweep(landing, stick) == (10, 10)
        assert await state.in_thread(import_receipts, state, stick, SECRET, now_ms) == store.durable
