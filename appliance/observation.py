"""Where the box is looked at from outside: metrics on a socket and a port, the status page. Nothing of it is loaded
before somebody asks.
"""

import logging
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from appliance.admin import open_socket
from appliance.box_view import BoxView
from appliance.errors import ApplianceError
from appliance.interfaces import is_loopback
from appliance.metrics.scrape import SOCKET_NAME
from appliance.sockets import open_port
from netstack.serving.limits import plain_address
from netstack.serving.slots import share_of

if TYPE_CHECKING:
    from appliance.page.changes import Ask
    from appliance.page.history import CurveHistory
    from appliance.web import Request, Respond, Response

log = logging.getLogger("appliance")
CONNECTIONS = 16  # at once, of each listener


Load = Callable[[], "Respond"]  # imports the answering part: in a thread, as it takes a tenth of a second


async def observe(
    watched: BoxView, runtime: Path, ask: "Ask", *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer until cancelled; what cannot be opened is logged, the box serves without it.

    `ask` takes a request to the box's own broker port: what somebody with the token changes goes that way.
    """
    config, doors = watched.config, list[tuple[trio.SocketListener, Load]]()
    metrics, history = partial(_metrics, watched), _history(watched) if config.page.port else None
    if (opened := _open_socket(runtime / SOCKET_NAME)) is not None:
        doors.append((opened, metrics))
    said: tuple[tuple[str, int, str, Load], ...] = (
        (config.metrics.host, config.metrics.port, "metrics.port", metrics),
        (config.page.host, config.page.port, "page.port", partial(_page, watched, history, ask)),
    )
    for host, port, key, load in said:
        doors += [(listener, load) for listener in await _open_port(host, port, key)] if port else []
    async with trio.open_nursery() as nursery:
        for listener, load in doors:
            nursery.start_soon(trio.serve_listeners, Door(load), [listener])
        if history is not None:
            nursery.start_soon(history.run)
        task_status.started()


def _history(watched: BoxView) -> "CurveHistory":
    from appliance.page.history import CurveHistory

    return CurveHistory(watched)


class Door:
    """Takes the connections of one listener; the first of them has the answering part loaded."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._respond: Respond | None = None
        self._open: dict[trio.CancelScope, str] = {}  # oldest first: whose connection it is

    async def __call__(self, stream: trio.SocketStream) -> None:
        """Answer one connection. One too many takes the place of the oldest of whoever has the most."""
        place, address = trio.CancelScope(), _address(stream.socket)
        if len(self._open) >= CONNECTIONS and not self._make_place(address):
            await stream.aclose()
            return
        self._open[place] = address
        try:
            with place:
                await self._serve(stream)
        finally:
            self._open.pop(place, None)
            await trio.aclose_forcefully(stream)

    def _make_place(self, address: str) -> bool:
        """End the oldest connection of the address that has the most; False when that is the one who asks."""
        held = Counter(self._open.values())
        greediest, most = held.most_common(1)[0]
        if most <= held[address] and greediest != address:
            return False
        oldest = next(place for place, holder in self._open.items() if holder == greediest)
        del self._open[oldest]
        oldest.cancel()
        return True

    async def _serve(self, stream: trio.SocketStream) -> None:
        respond = await self._loaded()
        if respond is None:
            await stream.aclose()
            return
        from appliance.web import converse

        peer = _address(stream.socket)

        async def answer(request: "Request") -> "Response":
            return await respond(replace(request, peer=peer))

        try:
            await converse(stream, answer, near=is_near(stream.socket))
        except Exception as exc:  # the task of one connection: looking at the box must never end it
            log.error("event=page_connection_failed", exc_info=exc)
            await trio.aclose_forcefully(stream)

    async def _loaded(self) -> "Respond | None":
        if self._respond is None:
            try:
                self._respond = await trio.to_thread.run_sync(self._load)
            except ImportError as exc:
                log.error("event=page_not_installed reason=%r next_step=install_the_package_again", str(exc))
        return self._respond


def _address(connection: trio.socket.SocketType) -> str:
    if connection.family == socket.AF_UNIX:
        return "this machine"
    try:
        return share_of(plain_address(str(connection.getpeername()[0])))
    except OSError:
        return "gone"


def is_near(connection: trio.socket.SocketType) -> bool:
    """Tell whether the other end is a program of this machine."""
    if connection.family == socket.AF_UNIX:
        return True
    try:
        return is_loopback(str(connection.getpeername()[0]).removeprefix("::ffff:"))
    except OSError:
        return False  # it has gone already


def _metrics(watched: BoxView) -> "Respond":
    from appliance.metrics.answer import metrics_answer

    return metrics_answer(watched)


def _page(watched: BoxView, history: "CurveHistory | None", ask: "Ask") -> "Respond":
    from appliance.page.answer import page_answer

    assert history is not None
    return page_answer(watched, history, ask)


def _open_socket(path: Path) -> trio.SocketListener | None:
    """Open the metrics socket for the box's own user and group."""
    try:
        made = open_socket(path, mode=0o660, backlog=CONNECTIONS)
    except OSError as exc:
        log.error("event=no_metrics_socket path=%s reason=%r next_step=check_the_folder", path, str(exc))
        return None
    return trio.SocketListener(trio.socket.from_stdlib_socket(made))


async def _open_port(host: str, port: int, key: str) -> list[trio.SocketListener]:
    try:
        return await open_port(host, port, key)
    except ApplianceError as exc:
        log.error("event=port_not_opened key=%s reason=%r next_step=change_the_key_and_restart", key, str(exc))
        return []
