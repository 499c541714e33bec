"""What outlives a connection: borders of pieces, divergence, waking; figures of an empty log."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from storage_driver.store import open_store
from tests.storage_driver.test_store import message, put_all, small
from uplink_spark.box.receipts.ledger import Ledger, ReceiptSeen
from uplink_spark.box.state import LogSource, ShipperState
from uplink_spark.config import UplinkConfig
from uplink_spark.testing import SOURCE, MadeLog, MadeRecord, encode_log

NOW = 1_700_000_000_000
RAW = bytes(range(256)) * 40  # 10,240 bytes: nothing here looks at records
Make = Callable[..., ShipperState]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(log: LogSource | None = None, **settings: object) -> ShipperState:
        ledger = Ledger(tmp_path / "rocketbox")
        ledger.open()
        config = replace(UplinkConfig(gateway="127.0.0.1", box="box-17"), **settings)  # type: ignore[arg-type]
        return ShipperState(log or MadeLog(RAW), config, ledger, now_ms=lambda: NOW, clock_ok=lambda: True)

    return made


async def test_a_piece_ends_at_a_file_a_run_an_epoch_and_a_switch(make: Make) -> None:
    state = make(MadeLog(RAW, file_bytes=4096))
    lineage = state.source.lineage
    lineage.runs += [(8, 1000), (9, 5000)]
    lineage.epochs += [(2, 6000)]
    state.ledger.switches = [(300, ("ALARM",))]
    borders = [0]
    while borders[-1] < 12288:
        borders.append(state.boundary(borders[-1]))
        assert borders[-1] > borders[-2]
    assert borders == [0, 300, 1000, 4096, 5000, 6000, 8192, 12288]
    assert state.file_end(0) == 4096
    assert state.file_end(4096) == 8192


async def test_a_damaged_ledger_does_not_forget_what_travels_apart(make: Make, tmp_path: Path) -> None:
    async with open_store(small(tmp_path / "store"), now_ms=lambda: NOW) as store:
        state = make(store, express=("T",))
        state.settle_express()
        await put_all(store, [message()])
        (tmp_path / "rocketbox" / "uplink.cbor").write_bytes(b"damaged")
        again = make(store, express=("T",))
        again.settle_express()
        assert again.ledger.switches == state.ledger.switches == [(0, ("T",))]


async def test_what_an_earlier_release_noted_with_its_receipts_holds(make: Make) -> None:
    state = make(express=("A",))
    state.ledger.switches = [(300, ("A",))]
    state.settle_express()
    assert state.ledger.switches[0] == state.source.lineage.express[0] == (300, ("A",))


async def test_the_newest_piece_is_compared_only_where_its_bytes_lie_here(make: Make) -> None:
    log = MadeLog(RAW, file_bytes=4096)
    state = make(log)

    def last(start: int, end: int, epoch: int = SOURCE.epoch) -> tuple[int, int, int, bytes]:
        return epoch, start, end, hashlib.sha256(RAW[start:end]).digest()

    assert state.differs(None) is None
    assert state.differs(last(100, 9000)) is None  # over three files
    assert state.differs((SOURCE.epoch, 100, 9000, b"x" * 32)) == 100
    assert state.differs((SOURCE.epoch + 1, 100, 9000, b"x" * 32)) is None
    assert state.differs((SOURCE.epoch, 100, len(RAW) + 1, b"x" * 32)) is None  # not durable here
    log.first = 4096
    assert state.differs((SOURCE.epoch, 100, 9000, b"x" * 32)) is None  # its file has gone
    log.first, log.lineage.epochs = 0, [(SOURCE.epoch, 0), (2, 5000)]
    assert state.differs((SOURCE.epoch, 100, 9000, b"x" * 32)) is None  # another epoch owns the end of it
    assert state.differs((SOURCE.epoch, 100, 5000, b"x" * 32)) == 100


async def test_the_blank_behind_the_newest_piece_is_no_other_history(make: Make) -> None:
    records = encode_log([MadeRecord(queue_offset=n) for n in range(40)])
    blank = struct.pack(">II", 4096 - len(records), 0xCBD43194).ljust(4096 - len(records), b"\0")
    state = make(MadeLog(records + blank + encode_log([MadeRecord()], 4096), file_bytes=4096))
    sha = hashlib.sha256(records[970:]).digest()
    assert state.differs((SOURCE.epoch, 970, 4096, sha)) is None
    assert state.differs((SOURCE.epoch, 970, len(records), sha)) is None
    assert state.differs((SOURCE.epoch, 970, 4096, bytes(32))) == 970
    assert state.differs((SOURCE.epoch, 970, 4095, sha)) == 970
    assert state.differs((SOURCE.epoch, 1067, 4096, sha)) == 1067


async def test_after_a_fork_nothing_above_it_counts_as_receipted_also_after_a_restart(make: Make) -> None:
    state = make()
    state.ledger.welcome(b"L" * 16, [(0, 9000)], [])
    state.ledger.save()
    await state.fork(8000)
    assert state.source.lineage.epochs[-1][1] == 8000
    again = Ledger(state.ledger.folder)
    again.open()
    assert list(again.receipted.log) == [(0, 8000)]
    assert not state.ledger.may_release(7000, 8001)
    assert state.boundary(7000) == 8000


async def test_an_empty_log_has_figures_too(make: Make) -> None:
    status = make(MadeLog(b"")).status()
    assert (status.durable, status.unshipped_bytes, status.backlog_bytes, status.eta_s) == (0, 0, 0, 0.0)
    assert (status.last_receipt_s, status.certificate_left_s, status.quota_left_s) == (None, None, -1.0)


async def test_what_is_receipted_or_declared_is_not_unshipped(make: Make) -> None:
    state = make()
    state.ledger.receipt("log", ReceiptSeen(0, 4000, "log", 1, 0, 0, NOW))
    state.ledger.receipt("log", ReceiptSeen(6000, 7000, "log", 2, 0, 0, NOW))
    status = state.status()
    assert (status.receipted_bytes, status.unshipped_bytes) == (5000, len(RAW) - 5000)
    assert status.eta_s == -1.0  # nothing moves: never


async def test_the_certificates_end_is_unknown_rather_than_wrong(make: Make, tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    state = make(certs=tmp_path / "certs")
    assert state.status().certificate_left_s is None
    (tmp_path / "certs/box.crt").write_text("no certificate")
    assert state.status().certificate_left_s is None


async def test_the_shipper_wakes_when_the_log_moves_and_rests_for_good_when_it_has_failed(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    log = MadeLog(RAW[:100])
    state = make(log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(state.watch_log)
        await trio.testing.wait_all_tasks_blocked()
        assert [at for at, _ in log.waiting] == [101]
        log.raw = RAW[:250]
        log.waiting.pop()[1](None)
        await trio.testing.wait_all_tasks_blocked()
        assert state.wakes.changed.is_set()
        assert [at for at, _ in log.waiting] == [251]
        state.wakes.changed = trio.Event()
        log.waiting.pop()[1]("no space left: taken back")
        await trio.testing.wait_all_tasks_blocked()
        assert [at for at, _ in log.waiting] == [251], "it goes on when there is room"
        state.wakes.changed = trio.Event()
        log.failure = "Input/output error"
        log.waiting.pop()[1]("Input/output error")
        await trio.testing.wait_all_tasks_blocked()
        assert (log.waiting, state.wakes.changed.is_set()) == ([], False)
        nursery.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == [
        "the log has failed: Input/output error; what is durable is still shipped"
    ]


async def test_a_pause_holds_until_it_is_lifted_whatever_else_wakes(make: Make) -> None:
    state = make()
    state.set_paused(True)
    through = trio.Event()

    async def connect() -> None:
        await state.wait_enabled()
        through.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect)
        await trio.testing.wait_all_tasks_blocked()
        state.ship_now()
        await trio.testing.wait_all_tasks_blocked()
        assert not through.is_set()
        assert state.wakes.ship_now_to == len(RAW)
        state.set_paused(False)
        await through.wait()
