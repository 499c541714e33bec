"""The stick: what is exported lands exactly, tampering is refused, twice is once, receipts come home."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from uplink_spark import testing_site
from uplink_spark.__main__ import main
from uplink_spark.box import stick as stick_module
from uplink_spark.box.reconcile import make_gap
from uplink_spark.box.shipper import Uplink
from uplink_spark.box.stick import export_pieces, import_receipts
from uplink_spark.centre.sweep import sweep_box
from uplink_spark.centre.zone_files.landing import open_zone
from uplink_spark.commands.gateway import now_ms
from uplink_spark.testing import landed_entries, landed_log
from uplink_spark.testing_site import EXPRESS_ONLY, MIB, box, fill, gateway, message, overfill, shipped, until
from uplink_spark.wire.stick_files import StickFile, StickIndex, StickRefused, read_index, write_file

pytestmark = pytest.mark.slow
SECRET = bytes(range(32))


async def exported(uplink: Uplink, stick: Path, codec: str = "zlib") -> StickIndex:
    return await export_pieces(uplink.shipper.state, uplink.shipper.quota.spool, stick, SECRET, codec)


async def imported(uplink: Uplink, stick: Path) -> int:
    return await import_receipts(uplink.shipper.state, uplink.shipper.quota.spool, stick, SECRET)


async def export(root: Path, stick: Path, count: int = 300) -> int:
    """A box that never reached the centre writes its log to a stick; returns its durable end."""
    async with box(root, 1) as (store, uplink):
        for number in range(count):
            store.put(message(number))
        await store.wait_committed(store.end)
        await exported(uplink, stick)
        return store.committed


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
        taken = await imported(uplink, stick)
        assert taken == durable
        assert uplink.may_release(0, durable)
        store.put(message(300))
        await store.wait_committed(store.end)
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
                assert await imported(uplink, stick) == durable
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
        await store.wait_committed(store.end)
        for number in range(2):
            state.ledger.gaps.declare(make_gap(state, 0, 0, ("rejected", "disk_full"), number))
        await exported(uplink, stick)
        assert await sweep(landing, stick) == (4, 4)
        assert not uplink.may_release(0, store.committed)
        assert await imported(uplink, stick) == store.committed
        assert uplink.may_release(0, store.committed)
        assert state.ledger.gaps.undelivered() == []
        again = await exported(uplink, tmp_path / "again")
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
        await store.wait_committed(store.end)
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
        await fill(store, 7, MIB - 1000)
        await exported(uplink, stick, "none")
        await sweep(landing, stick)
        await uplink.shipper.quota.discard(5 * MIB, "test")
        await store.drop_first()
        assert store.first == 5 * MIB
        taken = await imported(uplink, stick)
        assert taken == store.committed - store.first
        assert uplink.may_release(store.first, store.committed)


async def test_the_largest_pieces_of_a_stick_fit_a_gateways_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    large = testing_site.store_config(tmp_path / "store")._replace(segment_bytes=16 * MIB)
    monkeypatch.setattr(testing_site, "store_config", lambda root: large)
    async with box(tmp_path / "store", 1, piece_bytes=4 * MIB) as (store, uplink):
        await fill(store, 40, MIB - 1000)
        await exported(uplink, stick, "none")
        async with gateway(landing):
            assert await sweep(landing, stick) == (10, 10)
        assert await imported(uplink, stick) == store.committed


class SlowStick:
    """A stick that takes its first piece and then nothing until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names, self.go_on = list[str](), threading.Event()
        self._write = write_file
        monkeypatch.setattr(stick_module, "write_file", self._slowly)

    def _slowly(self, folder: Path, name: str, data: bytes) -> StickFile:
        self.names.append(name)
        assert len(self.names) == 1 or self.go_on.wait(60)
        return self._write(folder, name, data)


async def test_a_slow_stick_holds_up_neither_shipping_nor_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stick, landing, slow = tmp_path / "stick", tmp_path / "landing", SlowStick(monkeypatch)
    async with gateway(landing) as port:
        async with box(tmp_path / "store", 1) as (store, uplink):
            await fill(store, 12, MIB - 1000)
        async with box(tmp_path / "store", port) as (store, uplink), trio.open_nursery() as nursery:
            uplink.shipper.state.ledger.paused = True
            exporting = partial(exported, uplink, stick, "none")
            nursery.start_soon(exporting)
            await until(lambda: len(slow.names) == 2)
            uplink.shipper.state.set_paused(False)
            store.put(message(99))
            await until(shipped(store, uplink))
            await uplink.shipper.state.workers.in_thread(uplink.shipper.state.ledger.save)
            await store.drop_first()  # of what the stick has still to get
            await store.drop_first()
            slow.go_on.set()
    index = read_index(stick / "box-17", SECRET)
    starts = [int(Path(file.name).name[:20]) for file in index.files]
    assert starts[0] == 0
    assert 0 < starts[1] < 5 * MIB  # had been read before its file went
    assert starts[2] == 10 * MIB
    assert await sweep(landing, stick) == (len(starts), 0)


async def test_an_export_ends_with_the_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowStick(monkeypatch)
    async with box(tmp_path / "store", 1) as (store, uplink):
        await fill(store, 12, MIB - 1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exported, uplink, tmp_path / "stick", "none")
            await until(lambda: len(slow.names) == 2)
            nursery.cancel_scope.cancel()
            slow.go_on.set()
    assert len(slow.names) == 2
    assert not (tmp_path / "stick/box-17/INDEX.mac").exists()


async def test_a_stick_carries_the_express_topics_of_files_that_had_to_go(tmp_path: Path) -> None:
    stick, landing = tmp_path / "stick", tmp_path / "landing"
    async with box(tmp_path / "store", 1, **EXPRESS_ONLY) as (store, uplink):
        await overfill(store, uplink, ["bulk", "alarm", "bulk", "bulk"] * 4)
        spool, gone = uplink.shipper.quota.spool, store.first
        assert gone == 10 * MIB
        assert sum(kept.header.records for kept in spool.pieces()) == 3
        await exported(uplink, stick)
        pieces, new = await sweep(landing, stick)
        assert pieces == new
        await imported(uplink, stick)
        assert spool.places() == []
        assert uplink.may_release(store.first, store.committed)
    entries = landed_entries(landing, "box-17")
    assert sum(entry.records for entry in entries if entry.kind == "pick") == 4  # all of the topic, of lost files, too
    assert [(e.start, e.end) for e in entries if e.kind == "gap"] == [(0, 5 * MIB), (5 * MIB, 10 * MIB)]
    async with gateway(landing) as port, box(tmp_path / "store", port, **EXPRESS_ONLY) as (store, uplink):
        await until(lambda: uplink.statistics().connected)
        await until(shipped(store, uplink))
        assert uplink.statistics().counts.raw_bytes == 0
