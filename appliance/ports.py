"""The ports of a box: opened before anything else, or taken from systemd."""

import ipaddress
import os
from collections.abc import MutableMapping, Sequence

import trio

from appliance import sockets
from appliance.configuration.settings import MASTER_ROLE, MEMBER_ROLE, Config
from appliance.interfaces import LOOPBACK
from storage_driver.named_tuple import NamedTuple

VIP_BELOW, HA_ABOVE = 2, 1  # the broker's port: Apache's rule


class Ports(NamedTuple):
    """The open listeners, and the numbers they got: of one that closes as the box ends nobody can ask any more."""

    namesrv: list[trio.SocketListener]
    broker: list[trio.SocketListener]
    vip: list[trio.SocketListener]
    replication: Sequence[trio.SocketListener] = ()  # where others fetch the log
    grpc: Sequence[trio.SocketListener] = ()
    namesrv_port: int = 0
    broker_port: int = 0
    replication_port: int = 0  # 0: not open

    def near(self, own: str) -> str:
        """Return where this machine reaches them: over the loopback, but where they are bound to `own` alone.

        systemd binds its own to every address, whatever listen.host says: one that goes takes no proof of work along.
        """
        bound = ipaddress.ip_address(self.broker[0].socket.getsockname()[0])
        return LOOPBACK if bound.is_unspecified else own

    def again(self) -> "Ports":
        """Return the same ports, that of gRPC as a listener that is closed on its own: connections wait meanwhile."""
        return self._replace(grpc=_again(self.grpc))


def _again(listeners: Sequence[trio.SocketListener]) -> list[trio.SocketListener]:
    return [trio.SocketListener(listener.socket.dup()) for listener in listeners]


def activated(config: Config) -> dict[str, tuple[str, int]]:
    """Return key and number of the ports that systemd may open, by the name of its socket."""
    listen = config.listen
    return {
        "broker": ("listen.broker_port", listen.broker_port),
        "namesrv": ("listen.namesrv_port", listen.namesrv_port),
    }


async def open_ports(config: Config, environ: MutableMapping[str, str]) -> Ports:
    """Open the ports, or take them from systemd. Raises PortTaken, ConfigError."""
    listen = config.listen
    taken = sockets.take_over(environ, os.getpid())
    sockets.check_ports(taken, activated(config))
    namesrv = taken.get("namesrv") or await sockets.open_port(listen.host, listen.namesrv_port, "listen.namesrv_port")
    broker = taken.get("broker") or await sockets.open_port(listen.host, listen.broker_port, "listen.broker_port")
    vip: list[trio.SocketListener] = []
    role = config.replication.role
    has_slaves = role == MASTER_ROLE or (role == MEMBER_ROLE and config.replication.slaves)
    if listen.vip or has_slaves:  # a slave asks for the topics there
        vip = await sockets.open_port(listen.host, sockets.port_of(broker) - VIP_BELOW, "listen.broker_port (vip)")
    copied = role in (MASTER_ROLE, MEMBER_ROLE)
    replication = await _open_replication(config, sockets.port_of(broker)) if copied else ()
    grpc = await sockets.open_port(listen.host, config.grpc.port, "grpc.port") if config.grpc.port else ()
    listeners = (namesrv, broker, vip, replication, grpc)
    return Ports(*listeners, *(sockets.port_of(each) if each else 0 for each in (namesrv, broker, replication)))


async def _open_replication(config: Config, broker_port: int) -> list[trio.SocketListener]:
    port = config.replication.port or broker_port + HA_ABOVE
    return await sockets.open_port(config.listen.host, port, "replication.port")
