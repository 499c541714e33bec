"""What each part of the box is configured with, made of the settings that a user writes."""

import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.broker.delay.levels import parse_levels
from appliance.configuration.settings import MEMBER_ROLE, SLAVE_ROLE, Config, PageSection
from netstack.serving.addresses import host_port, is_loopback
from netstack.serving.limits import Limits
from storage_driver.config import StoreConfig
from storage_driver.retention.rules import RetentionClass, RetentionRules

if TYPE_CHECKING:
    from uplink_spark.config import UplinkConfig

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HOUR_MS = 3_600_000
RESERVE_BYTES = 32 * MIB
EVERY_ADDRESS = ("", "0.0.0.0", "::")
SAME_IN_UPLINK = (
    *("max_delay_s", "piece_bytes", "order", "backlog_share", "kbit_s", "codec", "express", "express_max_delay_s"),
    *("when_full", "max_lag_bytes", "max_lag_hours"),
)


def store_config(
    config: Config, data: Path, store_host: bytes, start_facts: Mapping[str, object] | None = None
) -> StoreConfig:
    """Return the store's settings."""
    return StoreConfig(
        root=data / "store",
        store_host=store_host,
        segment_bytes=config.store.segment_mib * MIB,
        max_message_bytes=config.limits.message_mib * MIB,
        flush_budget_ms=config.store.group_commit_ms,
        delays_ms=parse_levels(config.broker.delay_levels),
        verdicts=data / "verdicts",
        start_facts=start_facts or {},
        reserve_bytes=RESERVE_BYTES,
        zero_ahead=config.store.zero_ahead,
        copies_only=copies_only(config.replication.master) if config.replication.role == SLAVE_ROLE else None,
        shared=config.replication.role == MEMBER_ROLE,
        retention=RetentionRules(
            config.store.retention_h * HOUR_MS,
            tuple(RetentionClass(each.topics, each.retention_h * HOUR_MS) for each in config.store.classes),
            config.store.quota_gib * GIB,
        ),
    )


def copies_only(master: str) -> str:
    """Return what the senders of a slave are told."""
    return f"this box is a slave, its master {master} takes messages"


def page_hint(page: PageSection) -> Callable[[str], str]:
    """Return what says where the status page is, to a browser that came to an address of this box with another port."""

    def hint(address: str) -> str:
        if not page.port:
            return "The status page of this box is off: set page.port.\n"
        if is_loopback(page.host) and not is_loopback(address):
            return f"The status page is on the box itself: http://{host_port(page.host, page.port)}/\n"
        host = address if page.host in EVERY_ADDRESS else page.host
        return f"The status page: http://{host_port(host, page.port)}/\n"

    return hint


def net_limits(config: Config) -> Limits:
    """Return the limits of the two ports."""
    limits, descriptors = config.limits, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Limits(
        connections=limits.connections,
        connections_per_address=limits.connections_per_address,
        descriptors=max(0, descriptors),  # -1: as many as one likes
        new_per_s=limits.connects_per_s,
        new_burst=limits.connects_burst,
        first_frame_s=limits.first_frame_s,
        frame_bytes=limits.frame_mib * MIB,
        header_bytes=limits.header_kib * KIB,
        ext_fields=limits.header_fields,
        requests_in_flight=limits.requests_in_flight,
        bytes_in_flight=limits.bytes_in_flight_mib * MIB,
        unsent_bytes=limits.unsent_mib * MIB,
        unsent_s=limits.unsent_s,
        idle_s=limits.idle_s,
    )


def uplink_config(config: Config, software: str) -> "UplinkConfig":
    """Return the uplink's settings; `software`: name and version that the gateway is told."""
    from uplink_spark.config import CapWindow, Metered, UplinkConfig  # not loaded by a box without an uplink

    said = config.uplink
    return UplinkConfig(
        gateway=said.gateway,
        box=config.box.name,
        certs=Path(said.certs) if said.certs else None,
        windows=tuple(CapWindow(item.days, item.hours, item.kbit_s) for item in said.windows),
        metered=Metered(said.metered.interfaces, said.metered.month_mbytes, said.metered.backlog),
        software=software,
        **{name: getattr(said, name) for name in SAME_IN_UPLINK},
    )
