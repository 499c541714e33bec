"""The settings of both ends, frozen; `appliance` maps its table [uplink] to UplinkConfig."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from uplink_spark.errors import ConfigError

DEFAULT_PORT = 10940
MIB = 1 << 20
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class CapWindow:
    """A weekly window with its own cap, in the box's time zone."""

    days: str  # "mon-fri", "sat,sun"
    hours: str  # "07:00-19:00"
    kbit_s: int


@dataclass(frozen=True, slots=True)
class Metered:
    """Interfaces that cost money and their budget of a calendar month."""

    interfaces: tuple[str, ...] = ()
    month_mbytes: int = 0  # 0: no budget
    backlog: bool = False


@dataclass(frozen=True, slots=True)
class UplinkConfig:
    """The box's end. Without certs the gateway must be on loopback."""

    gateway: str
    box: str
    certs: Path | None = None
    max_delay_s: float = 10
    piece_bytes: int = 4 * MIB
    order: str = "live_first"
    backlog_share: float = 0.3
    kbit_s: int = 0
    codec: str = "auto"
    express: tuple[str, ...] = ()
    express_max_delay_s: float = 1
    when_full: str = "drop_oldest"
    max_lag_bytes: int = 0
    max_lag_hours: int = 0
    windows: tuple[CapWindow, ...] = ()
    metered: Metered = field(default_factory=Metered)
    software: str = "rocketbox"


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The centre's end."""

    landing: str
    listen: tuple[str, int]
    certs: Path | None = None
    shards: int = 1
    linger_ms: int = 1000
    window_bytes: int = 32 * MIB
    window_pieces: int = 64
    memory_bytes: int = 512 * MIB
    keep_days: int = 7
    max_boxes: int = 5000
    deny: Path | None = None
    rate_bytes: int = 0
    metrics: tuple[str, int] | None = None
    metrics_names: tuple[str, ...] = ()  # more names by which scrapers know it
    advertise: str | None = None  # where boxes reach this one of several gateways of a zone; None: it is the only one
    inbox_secrets: Path | None = None  # of the boxes whose pieces come by way of an object store's inbox


def split_address(text: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """Return host and port of `host:port`, `host` or `[v6]:port`. Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    if not colon or (host.endswith("]") is False and ":" in host):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or host.isdecimal() or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"address {text!r}: use HOST:PORT, for example 127.0.0.1:{default_port}")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return what `split_address` takes apart: an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def need_certs(host: str, certs: Path | None, what: str) -> None:
    """Without certificates only loopback is allowed. Raises ConfigError."""
    if certs is None and host not in LOOPBACK:
        raise ConfigError(
            f"{what} {host} without certificates: only loopback is allowed; make some with "
            "`python -m uplink_spark certs` and pass them with --certs DIR (box: uplink.certs)"
        )
