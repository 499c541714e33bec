"""The gateway's metrics over HTTP: the page's own web part, which loads the rest at the first scrape."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

import trio

from netstack.web.connections import WebConnections
from uplink_spark.centre.hub import Hub
from uplink_spark.config import GatewayConfig, split_address

if TYPE_CHECKING:
    from netstack.web.http import Request, Respond, Response

PATHS = ("/metrics", "/")


def known_names(config: GatewayConfig) -> frozenset[str]:
    """Return the names this gateway is known by to scrapers, beside names without a dot."""
    named = [split_address(config.advertise)] if config.advertise else []
    hosts = [host for host, _ in (config.listen, *([config.metrics] if config.metrics else []), *named)]
    return frozenset(name.lower() for name in (socket.gethostname(), *hosts, *config.metrics_names))


def metrics_answer(hub: Hub, names: frozenset[str]) -> Respond:
    """Return what answers scrapers; imports the libraries for it."""
    from netstack.web.http import METRICS, Response, host_is_known, plain
    from netstack.web.page_turns import PageTurns
    from uplink_spark.centre.metric_families import exposition, read_families

    turns = PageTurns()

    async def respond(request: Request) -> Response:
        host = request.headers.get("host", "")
        if "." in host and not host_is_known(host, names):  # nobody can register a name without a dot
            return plain(421, "this gateway has no such name: use its address, or add the name with --metrics-name")
        if request.method not in ("GET", "HEAD"):
            return plain(405, "metrics are read-only: use GET", ("Allow", "GET, HEAD"))
        if request.path not in PATHS:
            return plain(404, "metrics are at /metrics")
        async with turns.turn():
            families = read_families(hub, await _retired(hub))
            return Response(200, await trio.to_thread.run_sync(exposition, families), METRICS)

    return respond


async def _retired(hub: Hub) -> frozenset[str]:
    try:
        return await trio.to_thread.run_sync(hub.records.retired)
    except OSError:  # the zone is gone for a while; the other figures are there
        return frozenset()


async def serve_metrics(hub: Hub, listeners: list[trio.SocketListener], names: frozenset[str]) -> None:
    """Answer scrapes until cancelled."""
    await trio.serve_listeners(WebConnections(partial(metrics_answer, hub, names)), listeners)
