"""Admission: handshakes a second, what is logged, the deny list, certificates that are replaced while it runs."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.ports import free_port
from uplink_spark.centre import gateway as gateway_module
from uplink_spark.centre.gateway import (
    Certificates,
    PeerLog,
    _cause_of,
    _retain,
    _watch_disk,
    free_bytes,
    open_landers,
    run_gateway,
    used_share,
)
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.landing import ShardWriter
from uplink_spark.config import GatewayConfig
from uplink_spark.errors import ConfigError, LandingError, ProtocolError, Refused
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.testing_site import until
from uplink_spark.wire.link import LinkClosed
from uplink_spark.zone.manifest import DAY_MS

NOW = 1_700_000_000_000


def config_of(root: Path, **settings: object) -> GatewayConfig:
    return GatewayConfig(landing=str(root / "zone"), listen=("127.0.0.1", 0), **settings)  # type: ignore[arg-type]


async def test_a_peer_is_logged_once_a_minute_and_the_table_stays_small(autojump_clock: trio.testing.MockClock) -> None:
    log = PeerLog()
    assert [log.due("a"), log.due("a"), log.due("a"), log.due("b")] == [0, None, None, 0]
    await trio.sleep(61)
    assert [log.due("a"), log.due("b")] == [2, 0], "the next line says how many were left out"
    for number in range(25_000):
        log.due(str(number))
    assert len(log._last) <= 10_001


@pytest.mark.parametrize(
    ("listed", "names", "denied"),
    [
        ("box-17\n", ("box-17", "0A"), True),
        ("BOX-17\n", ("box-17", "0A"), True),
        ("0a\n", ("box-17", "0A"), True),
        ("box-1\nbox-170\n", ("box-17", "0A"), False),  # no prefix, no part
        ("", ("box-17", "0A"), False),
        ("box-18", ("", ""), False),
    ],
)
def test_the_deny_list_names_boxes_and_serials(
    tmp_path: Path, listed: str, names: tuple[str, ...], denied: bool
) -> None:
    (tmp_path / "deny").write_text(listed)
    assert Certificates(config_of(tmp_path, deny=tmp_path / "deny")).denied(*names) == denied
    assert not Certificates(config_of(tmp_path)).denied(*names)


def test_a_deny_list_that_cannot_be_read_admits_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert Certificates(config_of(tmp_path, deny=tmp_path / "absent")).denied("box-17")
    assert "no box is admitted" in caplog.text


def test_certificates_that_do_not_fit_together_leave_the_old_ones_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    certs = tmp_path / "certs"
    certs.mkdir()
    loaded = list[ssl.SSLContext]()

    def gateway_context(folder: Path) -> ssl.SSLContext:
        if (folder / "gateway.crt").read_text() == "half":
            raise ConfigError("the key does not belong to the certificate")
        loaded.append(ssl.create_default_context())
        return loaded[-1]

    monkeypatch.setattr(gateway_module, "gateway_context", gateway_context)
    monkeypatch.setattr(gateway_module, "not_after", len)
    (certs / "gateway.crt").write_text("half")
    certificates = Certificates(config_of(tmp_path, certs=certs))
    with pytest.raises(ConfigError):
        certificates.context()  # at the start it is an error
    (certs / "gateway.crt").write_text("whole!")
    first = certificates.context()
    assert first is loaded[0]
    assert certificates.context() is first  # nothing changed: not read again
    (certs / "gateway.crt").write_text("half")
    assert certificates.context() is first
    assert "the certificates loaded before stay in use" in caplog.text
    (certs / "gateway.crt").write_text("renewed")
    assert certificates.context() is loaded[1]
    assert certificates.ends_s == len("renewed")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ProtocolError("x"), "protocol"),
        (ProtocolError("x", "window"), "window"),
        (Refused("identity", "x"), "identity"),
        (ExceptionGroup("g", [ExceptionGroup("g", [Refused("busy", "x")])]), "busy"),
        (trio.BrokenResourceError(), "network"),
        (LinkClosed("x"), "closed"),
        (OSError("x"), "closed"),
        (KeyError("x"), "internal"),
    ],
)
def test_what_ended_a_connection_has_one_cause(error: Exception, cause: str) -> None:
    assert _cause_of(error)[0] == cause


def test_a_bug_of_ours_leaves_its_traceback_and_a_peers_fault_does_not(caplog: pytest.LogCaptureFixture) -> None:
    _cause_of(ProtocolError("x"))
    assert caplog.records == []
    _cause_of(KeyError("x"))
    assert caplog.records[0].exc_info


def test_figures_of_the_disk_are_those_of_df(tmp_path: Path) -> None:
    assert 0 < used_share(tmp_path) <= 1
    assert free_bytes(tmp_path) > 0


def test_every_shard_that_was_opened_is_closed_when_one_cannot_be(tmp_path: Path) -> None:
    config = config_of(tmp_path, shards=3)
    with open_landers(config, lambda: NOW) as (landers, hub):
        assert [lander.shard for lander in landers] == [0, 1, 2]
        assert hub.lander_of("box-17").shard == hub.lander_of("box-17").shard
    damaged = tmp_path / "zone/manifest/0001" / f"{0:020d}.log"
    damaged.write_bytes(b"x" * 64)
    with pytest.raises(Exception, match="the head says"), open_landers(config, lambda: NOW):
        pytest.fail("opened")
    writer = ShardWriter(tmp_path / "zone", 0)
    writer.open(ShardCover())  # nobody holds it
    writer.close()


def test_a_zone_that_cannot_be_locked_is_one_sentence_with_what_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "zone/manifest/0000/lock").mkdir(parents=True)  # as a disk that is read-only: no lock can be opened
    with pytest.raises(LandingError, match=r"zone: .*lock'?; is it mounted and writable"):  # noqa: SIM117
        with open_landers(config_of(tmp_path), lambda: NOW):
            pytest.fail("opened")


async def test_a_zone_that_is_gone_for_a_while_ends_no_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "DISK_LOOK_S", 0.001)
    answers = iter([OSError("stale handle"), OSError("stale handle")])

    def used() -> float:
        answer = next(answers, 0.9)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with open_landers(config_of(tmp_path), lambda: NOW) as (_, hub):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_disk, hub, used)
            await until(lambda: hub.disk_used == 0.9)
            nursery.cancel_scope.cancel()
    assert caplog.text.count("stale handle") == 1


async def test_a_start_that_fails_leaves_no_port_open(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "zone").write_text("no folder")
    config = GatewayConfig(landing=str(tmp_path / "zone"), listen=("127.0.0.1", port))
    with pytest.raises(LandingError, match="is it mounted and writable"):
        await run_gateway(config, now_ms=lambda: NOW)
    listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
    with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is taken by another program; choose another"):
        await run_gateway(config, now_ms=lambda: NOW)
    for listener in listeners:
        await listener.aclose()


async def test_retention_waits_where_the_clock_is_ahead_of_all_boxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gateway_module, "RETAIN_FIRST_S", 0)
    monkeypatch.setattr(gateway_module, "RETAIN_S", 0.001)
    landing = MadeLanding(tmp_path / "zone")
    piece = log_piece([MadeRecord()], 0)
    landing.land(piece, now_ms=NOW)
    landing.close()
    jumped_ms, doubts = NOW + 20 * 365 * DAY_MS, [DAY_MS + 1, DAY_MS + 2]
    config = config_of(tmp_path)
    with open_landers(config, lambda: jumped_ms) as (_, hub):
        packs: list[int] = []

        def ahead() -> int:
            packs.append(len(list(landing.root.glob("pack/*/*/*.pack"))))
            return doubts.pop() if doubts else DAY_MS

        monkeypatch.setattr(hub, "clock_ahead_ms", ahead)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_retain, config, hub, lambda: jumped_ms)
            await until(lambda: not list(landing.root.glob("pack/*/*/*.pack")))
            nursery.cancel_scope.cancel()
    assert packs[:3] == [1, 1, 1]
    assert "1.0 days ahead of those of connected boxes; set it right; it continues in an hour" in caplog.text
