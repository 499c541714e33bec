"""Where the box is looked at from outside: metrics on a socket and a port, the status page. Nothing of it is loaded
before somebody asks.
"""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from appliance.admin import open_socket
from appliance.box_view import BoxView
from appliance.errors import ApplianceError, PortTaken
from appliance.health.conditions import Condition
from appliance.metrics.scrape import SOCKET_NAME
from appliance.sockets import open_port, port_of
from netstack.web.connections import CONNECTIONS, Load, WebConnections

if TYPE_CHECKING:
    from appliance.page.changes import Ask
    from appliance.page.history import CurveHistory
    from netstack.web.http import Respond

log = logging.getLogger("appliance")
SERVED = {"page.port": "no status page", "metrics.port": "no metrics port"}  # what there is not where it is closed


async def observe(
    watched: BoxView,
    runtime: Path,
    ask: "Ask",
    admits: Callable[[str], bool],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer until cancelled; what cannot be opened is a condition, the box serves without it.

    `ask` takes a request to the box's own broker port: what somebody with the token changes goes that way. `admits`
    tells by address who may come, as at the ports of clients.
    """
    config, doors, closed = watched.config, list[tuple[trio.SocketListener, Load]](), list[Condition]()
    metrics, history = partial(_metrics, watched), _history(watched) if config.page.port else None
    if (opened := _open_socket(runtime / SOCKET_NAME)) is not None:
        doors.append((opened, metrics))
    said: tuple[tuple[str, int, str, Load], ...] = (
        (config.metrics.host, config.metrics.port, "metrics.port", metrics),
        (config.page.host, config.page.port, "page.port", partial(_page, watched, history, ask)),
    )
    for host, port, key, load in said:
        listeners = await _open_port(host, port, key, closed) if port else []
        doors += [(listener, load) for listener in listeners]
        if listeners and watched.board is not None:
            watched.board.opened(key.removesuffix(".port"), port_of(listeners))
    if closed and watched.board is not None:
        watched.board.add_source(lambda: closed)
    async with trio.open_nursery() as nursery:
        for listener, load in doors:
            nursery.start_soon(trio.serve_listeners, WebConnections(load, partial(_admit, watched, admits)), [listener])
        if history is not None:
            nursery.start_soon(history.run)
        task_status.started()


def _admit(watched: BoxView, admits: Callable[[str], bool], address: str, port: int) -> bool:
    """Tell whether a connection is taken; one that is not is counted and logged as at the ports of clients."""
    if not admits(address):
        watched.governor.refused(address, port, "access: address is not allowed")
        return False
    return True


def _history(watched: BoxView) -> "CurveHistory":
    from appliance.page.history import CurveHistory

    return CurveHistory(watched)


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


async def _open_port(host: str, port: int, key: str, closed: list[Condition]) -> list[trio.SocketListener]:
    """Return the listeners of a port, none where it cannot be opened: then `closed` says why."""
    try:
        return await open_port(host, port, key)
    except PortTaken:
        why = f"port {port} on {host} is taken by another program"
        step = f"stop it (`ss -ltnp 'sport = :{port}'` names it) or choose another {key}, then restart the box"
    except ApplianceError as exc:
        why, step = str(exc), f"correct {key.partition('.')[0]}.host or {key}, then restart the box"
    log.error("event=port_not_opened key=%s reason=%r next_step=%r", key, why, step)
    closed.append(Condition("port_closed", f"{SERVED[key]}: {why}", step, key))
    return []
