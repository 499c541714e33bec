"""GET /metrics, on the unix socket and on metrics.port."""

from __future__ import annotations

import trio

from appliance.access.page_token import is_token, read_token
from appliance.box_view import BoxView
from appliance.metrics.gather import Gatherer
from netstack.web.http import METRICS, Request, Respond, Response, host_is_known, plain
from netstack.web.page_turns import PageTurns

TOKEN_NEEDED = "from another machine this needs the token that `rocketbox page --token` prints, as a bearer token"


def metrics_answer(watched: BoxView) -> Respond:
    """Return what answers scrapers."""
    gatherer, turns = Gatherer(watched), PageTurns()
    names = known_names(watched)

    async def respond(request: Request) -> Response:
        if not host_is_known(request.headers.get("host", ""), names):
            return plain(421, "this box has no such name: use its address, or add the name to page.names")
        if request.method not in ("GET", "HEAD"):
            return plain(405, "metrics are read-only: use GET", ("Allow", "GET, HEAD"))
        if request.path != "/metrics":
            return plain(404, "metrics are at /metrics")
        if not request.near and not await has_bearer(watched, request):
            return plain(401, TOKEN_NEEDED, ("WWW-Authenticate", "Bearer"))
        async with turns.turn():
            return Response(200, await gatherer.text(), METRICS)

    return respond


def known_names(watched: BoxView) -> frozenset[str]:
    """Return the names this box is known by to browsers and scrapers."""
    name = watched.config.box.name
    return frozenset({name, f"{name}.local", *watched.config.page.names})


async def has_bearer(watched: BoxView, request: Request) -> bool:
    """Tell whether a request carries the box's token."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not given:
        return False
    return is_token(given.strip(), await trio.to_thread.run_sync(read_token, watched.data))
