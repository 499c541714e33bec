"""Opens the service to RocketMQ 5 clients: its parts are loaded here, when the port is on, and not before."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import trio

from appliance.configuration.settings import Config
from appliance.errors import ConfigError, ConfigProblem
from appliance.grpc.parts import GrpcParts
from netstack.serving.governor import Governor
from netstack.serving.server import Secure, serve_connections

__all__ = ["GrpcParts", "serve_grpc"]


async def serve_grpc(
    config: Config,
    listeners: Sequence[trio.SocketListener],
    served: GrpcParts,
    governor: Governor,
    tls: Secure | None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled. Raises ConfigError when a library is missing."""
    service, serving = _load()  # a tenth of a second at start; in a thread it would keep a mebibyte more
    made = service.make_service(config, served)
    connect, allow = serving.GrpcServing(made.methods, counts=served.counts).connect, served.gate.admits
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.renewing)
        at_port = connect if served.group is None else served.group.connect(connect)
        serve = await nursery.start(partial(serve_connections, listeners, at_port, governor, tls=tls, allow=allow))
        if served.group is not None:
            nursery.start_soon(served.group.run, serve)
        task_status.started()


def _load() -> tuple[Any, Any]:
    try:
        from appliance.grpc import service
        from netstack.grpc import connection
    except ImportError as exc:
        text = f"{exc}: install the package again, or in a checkout `make proto`"
        raise ConfigError("grpc", [ConfigProblem("grpc.port", "", text, None)]) from exc
    return service, connection
