"""`gateway`: its options become settings, and a mistake is told before anything is opened."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from uplink_spark.__main__ import main, make_parser
from uplink_spark.commands.gateway import config_of
from uplink_spark.config import GatewayConfig, split_address
from uplink_spark.errors import ConfigError, first_error


def options(*given: str) -> argparse.Namespace:
    return make_parser().parse_args(["gateway", "--landing", "/zone", *given])


def test_without_options_the_gateway_listens_on_loopback_alone() -> None:
    assert config_of(options()) == GatewayConfig(landing="/zone", listen=("127.0.0.1", 10940))


def test_each_option_reaches_its_setting() -> None:
    config = config_of(
        options(
            "--listen", "[::1]:7", "--certs", "/c", "--shards", "3", "--linger-ms", "5", "--window", "2",
            "--keep-days", "4", "--max-boxes", "6", "--deny", "/d", "--rate", "9", "--metrics", "0.0.0.0:8",
        )
    )  # fmt: skip
    assert config == GatewayConfig(
        "/zone", ("::1", 7), Path("/c"), 3, 5, 2 << 20, keep_days=4, max_boxes=6, deny=Path("/d"), rate_bytes=9,
        metrics=("0.0.0.0", 8),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "told"), [("gw1.example.net", "gw1.example.net:10940"), ("[2001:db8::1]:7", "[2001:db8::1]:7")]
)
def test_boxes_are_told_an_address_that_they_can_take_apart(given: str, told: str) -> None:
    assert config_of(options("--advertise", given)).advertise == told
    assert split_address(told) == split_address(given)


@pytest.mark.parametrize("text", ["localhost:x", ":7", "10940", "h:65536", "h:-1", "h:²"])
def test_an_address_that_is_none_is_told_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="use HOST:PORT, for example"):
        config_of(options("--listen", text))


def test_other_addresses_need_certificates_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.commands.gateway.log_to_stderr", lambda: None)
    zone = tmp_path / "zone"
    assert main(["gateway", "--landing", str(zone), "--listen", "192.0.2.1:0"]) == 2
    assert "make some with `python -m uplink_spark certs` and pass them with --certs DIR" in capsys.readouterr().err
    assert not zone.exists()


def test_the_cause_inside_groups_is_found() -> None:
    inner = ConfigError("x")
    assert first_error(BaseExceptionGroup("a", [ExceptionGroup("b", [inner]), KeyError()])) is inner
