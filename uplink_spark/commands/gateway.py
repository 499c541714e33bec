"""`gateway`: the ingest gateway until SIGTERM."""

from __future__ import annotations

import argparse
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import trio

from uplink_spark.bounds import whole
from uplink_spark.commands.parts import Subcommand, log_to_stderr
from uplink_spark.config import GatewayConfig, join_address, split_address
from uplink_spark.errors import UplinkError, first_error
from uplink_spark.zone.files import shown


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--landing", required=True, help="landing zone: a directory, or s3:, gs:, abfss: of a bucket")
    parser.add_argument("--listen", default="127.0.0.1:10940", metavar="HOST:PORT")
    parser.add_argument(
        "--certs", type=Path, help="folder with gateway.crt, gateway.key, ca.crt; without: only loopback"
    )
    parser.add_argument("--shards", type=whole(1), default=1, help="shards of a new landing zone; fixed afterwards")
    parser.add_argument(
        "--linger-ms", type=whole(0), default=1000, help="longest wait to collect pieces for one commit"
    )
    parser.add_argument(
        "--window", type=whole(1), default=32, metavar="MIB", help="raw MiB that a box may send ahead of receipts"
    )
    parser.add_argument("--keep-days", type=whole(0), default=7)
    parser.add_argument("--max-boxes", type=whole(1), default=5000)
    parser.add_argument(
        "--deny", type=Path, metavar="FILE", help="denied box names and certificate serials, one per line"
    )
    parser.add_argument("--rate", type=whole(0), default=0, metavar="BYTES_S", help="rate limit for every box; 0: none")
    parser.add_argument(
        "--inbox-secrets", type=Path, metavar="DIR",
        help="sweep inbox/<box> of a zone in an object store; a file <box> with the uplink secret in hex for each box",
    )  # fmt: skip
    parser.add_argument(
        "--advertise", metavar="HOST:PORT",
        help="address at which boxes reach this one of several gateways of the zone; without: the only gateway",
    )  # fmt: skip
    parser.add_argument("--metrics", metavar="HOST:PORT", help="address for Prometheus metrics over HTTP")
    parser.add_argument(
        "--metrics-name", metavar="NAME", action="append", default=[],
        help="name with a dot by which scrapers ask for the metrics, where it is not that of this machine; repeatable",
    )  # fmt: skip


def config_of(options: argparse.Namespace) -> GatewayConfig:
    """Return the frozen settings. Raises ConfigError."""
    return GatewayConfig(
        landing=options.landing,
        listen=split_address(options.listen),
        certs=options.certs,
        shards=options.shards,
        linger_ms=options.linger_ms,
        window_bytes=options.window << 20,
        keep_days=options.keep_days,
        max_boxes=options.max_boxes,
        deny=options.deny,
        rate_bytes=options.rate,
        inbox_secrets=options.inbox_secrets,
        advertise=options.advertise and join_address(*split_address(options.advertise)),
        metrics=split_address(options.metrics) if options.metrics else None,
        metrics_names=tuple(options.metrics_name),
    )


async def _stop_on_signal(cancel: Callable[[], None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            cancel()


async def _serve(config: GatewayConfig) -> None:
    from uplink_spark.centre.gateway import run_gateway

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, nursery.cancel_scope.cancel)
        host, port = await nursery.start(
            lambda task_status: run_gateway(config, now_ms=now_ms, task_status=task_status)
        )
        print(f"ready listen={join_address(host, port)} landing={shown(config.landing)}", flush=True)


def _allow_many_connections() -> None:
    """One descriptor a box: lift the soft limit to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(options: argparse.Namespace) -> int:
    log_to_stderr()
    _allow_many_connections()
    try:
        trio.run(_serve, config_of(options))
    except BaseExceptionGroup as group:
        first = first_error(group)
        if isinstance(first, UplinkError):
            raise first from None
        raise
    return 0


COMMANDS = (Subcommand("gateway", "receive pieces from boxes and land them", _options, run),)
