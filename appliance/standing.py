"""How the broker of a box stands to others that have the same log, for as long as that stays so."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from appliance import admin
from appliance.broker.broker_tables import BrokerTables
from appliance.broker.tables.saving import KeptFiles, TableFile
from appliance.ports import Ports
from appliance.requests import Handle
from netstack.serving.governor import Governor, HttpHint
from netstack.serving.limits import Limits
from storage_driver.named_tuple import NamedTuple

if TYPE_CHECKING:
    from appliance.grpc.parts import GroupPort
    from appliance.replication.role import ReplicationRole

MayGo = Callable[[int, int], bool]
TakeActions = Callable[[trio.Nursery, Path, Mapping[str, admin.Action]], Awaitable[None]]


async def serve_actions(nursery: trio.Nursery, runtime: Path, actions: Mapping[str, admin.Action]) -> None:
    """Answer at admin.sock as long as the broker does."""
    await nursery.start(admin.serve_admin, runtime / admin.NAME, actions)


def own_ports(ports: Ports) -> Ports:
    """Return the ports, which are closed with the broker."""
    return ports


class ClientPorts(Protocol):
    """Has connections of clients answered."""

    def governor(self, limits: Limits, http_hint: HttpHint, /) -> Governor:
        """Return what all connections share."""

    async def serve(
        self, nursery: trio.Nursery, name: str, handle: Handle, serving: Callable[..., Awaitable[None]], /
    ) -> None:
        """Answer at a port by `handle` until the nursery ends; `serving` takes a handler and opens the port."""


class OwnConnections:
    """Connections end with the broker."""

    def governor(self, limits: Limits, http_hint: HttpHint) -> Governor:
        return Governor(limits, http_hint=http_hint)

    async def serve(
        self, nursery: trio.Nursery, name: str, handle: Handle, serving: Callable[..., Awaitable[None]]
    ) -> None:
        await nursery.start(serving, handle)


def as_they_are(tables: BrokerTables, handlers: dict[int, Handle]) -> dict[int, Handle]:
    """Return the handlers of a broker that nobody else may go on with."""
    return handlers


def told_nobody(tables: BrokerTables, may_go: MayGo) -> None:
    """Nobody else looks at the tables."""


class Standing(NamedTuple):
    """A box by itself, unless it says otherwise.

    `files`: where the tables are kept, None: in the store. `follows`: another broker has the same log and takes the
    messages. `saves`: whether the tables are written once more at the end. `floor`: retention must not pass this log
    offset. `answering` may change what the broker answers. `composed` is told the tables of the broker, and what tells
    whether its part needs a segment no longer.
    `clients`: what becomes of connections when it ends. `grpc`: what becomes of those of gRPC clients in a group.
    """

    kv_file: TableFile
    files: KeptFiles | None = None
    make_role: "Callable[[BrokerTables], ReplicationRole] | None" = None
    follows: bool = False
    saves: Callable[[], bool] = lambda: True
    floor: Callable[[], int] = lambda: sys.maxsize
    answering: Callable[[BrokerTables, dict[int, Handle]], dict[int, Handle]] = as_they_are
    composed: Callable[[BrokerTables, MayGo], None] = told_nobody
    ports: Callable[[Ports], Ports] = own_ports
    clients: ClientPorts = OwnConnections()
    take_actions: TakeActions = serve_actions
    grpc: "GroupPort | None" = None
