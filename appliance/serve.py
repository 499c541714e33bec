"""Run the box: parts built from the bottom up, cancelled from the top down. The only file that knows them all."""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from appliance import admin, sockets
from appliance.access.guard import Guard, make_guard
from appliance.box_view import BoxView
from appliance.broker.assembly import (
    Assembled,
    BrokerTables,
    assemble,
    assignment_handlers,
    make_tables,
    rebuild_dedup,
)
from appliance.broker.intake import Space
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.saving import Saver, load_table
from appliance.clock import clock_trusted
from appliance.configuration.parts import net_limits, store_config, uplink_config
from appliance.configuration.settings import ALONE, MASTER_ROLE, MEMBER_ROLE, Config
from appliance.device.probe import Probe
from appliance.errors import ConfigError, ConfigProblem
from appliance.health.condition_watch import ConditionSources
from appliance.health.group_watch import GroupLimits
from appliance.health.telling import begin_telling
from appliance.interfaces import LOOPBACK, own_address, read_interfaces, remembered
from appliance.namesrv.address import AnsweredAddress, joined
from appliance.namesrv.handlers import NamesrvState, expire_brokers, namesrv_handlers
from appliance.namesrv.kv_config import KvConfig, KvConfigDamaged
from appliance.namesrv.own_broker import own_broker
from appliance.namesrv.route_table import RouteTable
from appliance.observation import observe
from appliance.requests import Handle, Responder, ResponderStatistics, without
from appliance.supervision import HealthParts, Supervision, package_version
from netstack.serving.governor import Governor
from netstack.serving.server import serve_remoting
from netstack.wire.bodies_route import properties_text
from netstack.wire.codes import RequestCode
from storage_driver.errors import StoreUnwritable
from storage_driver.files.disk import Disk, RealDisk
from storage_driver.files.layout_repair import free_tables
from storage_driver.files.memory_layer import MemoryLayer
from storage_driver.files.state_file import StateFile
from storage_driver.log.clock import wall_ms
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import encode_host
from storage_driver.store import MessageStore, open_store

if TYPE_CHECKING:
    from appliance.namesrv.registrar import Registrar
    from appliance.replication.role import ReplicationRole
    from uplink_spark.box.shipper import Uplink

log = logging.getLogger("appliance")
FLUSH_S = 3.0  # for the tables at a stop; the process has five seconds in all
VIP_BELOW, HA_ABOVE = 2, 1  # the broker's port: Apache's rule
LOCAL = frozenset({"", "0.0.0.0", "::", "localhost"})  # a probe of these goes over the loopback


class Ready(NamedTuple):
    """What the box says when it serves."""

    namesrv: str
    broker: str
    data: Path
    verdict: str

    def line(self, started_ms: int) -> str:
        """Return the one line of `serve`."""
        return (
            f"ready namesrv={self.namesrv} broker={self.broker} data={self.data} "
            f"recovered={self.verdict} in {started_ms} ms"
        )


class Ports(NamedTuple):
    """The open listeners, and the numbers they got."""

    namesrv: list[trio.SocketListener]
    broker: list[trio.SocketListener]
    vip: list[trio.SocketListener]
    replication: Sequence[trio.SocketListener] = ()  # where slaves fetch the log
    grpc: Sequence[trio.SocketListener] = ()

    @property
    def broker_port(self) -> int:
        return sockets.port_of(self.broker)

    @property
    def namesrv_port(self) -> int:
        return sockets.port_of(self.namesrv)


async def open_ports(config: Config, environ: MutableMapping[str, str]) -> Ports:
    """Open the ports, or take them from systemd. Raises PortTaken, ConfigError."""
    listen = config.listen
    taken = sockets.take_over(environ, os.getpid())
    keys = {
        "broker": ("listen.broker_port", listen.broker_port),
        "namesrv": ("listen.namesrv_port", listen.namesrv_port),
    }
    sockets.check_ports(taken, keys)
    namesrv = taken.get("namesrv") or await sockets.open_port(listen.host, listen.namesrv_port, "listen.namesrv_port")
    broker = taken.get("broker") or await sockets.open_port(listen.host, listen.broker_port, "listen.broker_port")
    vip: list[trio.SocketListener] = []
    master = config.replication.role == MASTER_ROLE
    if listen.vip or master:  # a slave asks for the topics there
        vip = await sockets.open_port(listen.host, sockets.port_of(broker) - VIP_BELOW, "listen.broker_port (vip)")
    replication = await _open_replication(config, sockets.port_of(broker)) if master else ()
    grpc = await sockets.open_port(listen.host, config.grpc.port, "grpc.port") if config.grpc.port else ()
    return Ports(namesrv, broker, vip, replication, grpc)


async def _open_replication(config: Config, broker_port: int) -> list[trio.SocketListener]:
    port = config.replication.port or broker_port + HA_ABOVE
    return await sockets.open_port(config.listen.host, port, "replication.port")


def always(base: int, end: int) -> bool:
    """Without an uplink only age and disk marks count."""
    return True


def never(base: int, end: int) -> bool:
    """While the box starts nothing is deleted: who still needs the log has not been asked yet."""
    return False


def forgotten(done: int, total: int) -> None:
    """Nobody is told how far the recovery is."""


class _ServeContext(NamedTuple):
    """What is settled before the store opens."""

    config: Config
    data: Path
    ports: Ports
    own: str  # address of this machine
    guard: Guard
    supervision: Supervision | None
    now_ms: Callable[[], int]
    clock_trusted: Callable[[], bool]

    @property
    def broker_address(self) -> str:
        return joined(self.own, self.ports.broker_port)

    @property
    def runtime(self) -> Path:
        return self.supervision.runtime if self.supervision else self.data / "run"


async def serve(
    config: Config,
    data: Path,
    ports: Ports,
    *,
    ready: Callable[[Ready], None],
    supervision: Supervision | None = None,
    now_ms: Callable[[], int] = wall_ms,
    clock_trusted: Callable[[], bool] = clock_trusted,
) -> None:
    """Run the box until cancelled; `ready`: both ports answer. Raises StoreRefused, ConfigError, OSError."""
    if config.replication.role == MEMBER_ROLE:
        text = "this version has no groups yet"
        raise ConfigError("replication", [ConfigProblem("replication.role", MEMBER_ROLE, text, None)])
    interfaces = remembered(read_interfaces)
    own = own_address(config.listen.host, interfaces)
    guard = make_guard(config, data, now_ms=now_ms)
    context = _ServeContext(config, data, ports, own, guard, supervision, now_ms, clock_trusted)
    arrivals = Arrivals(config.limits.parked_pulls, lambda queue: store.max_offset(queue))
    async with _opening(context, arrivals) as (store, disk, context):
        tables = make_tables(config, store, arrivals, now_ms=now_ms)
        await rebuild_dedup(tables, store, now_ms=now_ms)
        broker = assemble(config, store, tables, context.broker_address, now_ms=now_ms)
        answered = AnsweredAddress(config.advertise.rules, ports.broker_port, interfaces, own)
        role = _role(context, store, tables) if config.replication.role != ALONE else None
        namesrv = namesrv_state(config, data, tables, answered, disk, role=role)
        registrar = _registrar(config, tables, answered, role) if config.namesrv.register_at else None
        parts = _Parts(store, tables, broker, namesrv, role, registrar)
        try:
            async with trio.open_nursery() as nursery:
                for loop in (*broker.loops, namesrv.kv_saver.run, *context.guard.loops):
                    nursery.start_soon(loop)
                nursery.start_soon(expire_brokers, namesrv.routes, namesrv.now_s)
                await _let_in(nursery, context, parts)
                if registrar:
                    nursery.start_soon(registrar.run)
                verdict = store.verdict.verdict
                ready(Ready(joined(own, ports.namesrv_port), context.broker_address, data, verdict))
        finally:
            await _save((*broker.flushes, namesrv.kv_saver.flush))


@asynccontextmanager
async def _opening(
    context: _ServeContext, arrivals: Arrivals
) -> AsyncIterator[tuple[MessageStore, Disk, _ServeContext]]:
    """Open the store; where a file of it is protected against writing it is read, from a layer in memory."""
    supervision = context.supervision
    reason = supervision.read_only if supervision else None
    facts = supervision.start_facts() if supervision else {}
    receipts = await trio.to_thread.run_sync(_receipts, context) if context.config.uplink.gateway else {}
    opening = partial(
        open_store,
        store_config(context.config, context.data, encode_host(context.own, context.ports.broker_port), facts),
        now_ms=context.now_ms,
        arrived=arrivals.arrived,
        watched=arrivals.watched,
        clock_trusted=context.clock_trusted,
        retain=never,
        progress=supervision.recovering if supervision else forgotten,
        others=receipts,
    )
    async with AsyncExitStack() as stack:
        disk: Disk = RealDisk() if reason is None else MemoryLayer()
        try:
            store = await stack.enter_async_context(opening(disk=disk))
        except StoreUnwritable as exc:
            if reason is not None:
                raise
            disk, reason = MemoryLayer(), str(exc)
            store = await stack.enter_async_context(opening(disk=disk))
            store.verdict.verdict = "read_only"
            store.verdict.reasons.append(reason)
            supervision = supervision and supervision.protected(reason)
        if reason is not None:
            log.error("event=read_only reason=%r", reason)
            store.seal(f"this box is read-only: {reason}")
        yield store, disk, context._replace(supervision=supervision)


def _receipts(context: _ServeContext) -> dict[str, int]:
    """Return how far the gateway has receipted this log: what it has was durable here. Blocks."""
    from uplink_spark.box.receipts.ledger import Ledger

    try:
        return {"receipts of the gateway": Ledger(context.data / "store" / "rocketbox").receipted_to()}
    except OSError:  # the uplink says what is wrong with it
        return {}


class _Parts(NamedTuple):
    """What is to be opened to clients, and looked at."""

    store: MessageStore
    tables: BrokerTables
    broker: Assembled
    namesrv: NamesrvState
    role: "ReplicationRole | None"
    registrar: "Registrar | None"

    def broker_handlers(self) -> dict[int, Handle]:
        """Return what the broker answers: its own requests, those of its role, and who reads which queue."""
        answering = self.broker.handlers | (self.role.handlers() if self.role else {})
        if self.registrar:  # others know more brokers
            return answering | self.registrar.telling(answering)
        return answering | assignment_handlers(self.tables, self.namesrv.routes.readable)


async def _let_in(nursery: trio.Nursery, context: _ServeContext, parts: _Parts) -> None:
    """Start the uplink, open the ports to clients and tools, then let the watchdog and the observers look."""
    config, guard, ports, now_ms = context.config, context.guard, context.ports, context.now_ms
    store, tables, broker, namesrv, role, _ = parts
    uplink, actions = _start_uplink(nursery, context, store, tables.space) if config.uplink.gateway else (None, {})
    shipped = uplink.may_release if uplink else always
    accounts = guard.handlers(config.box.name, config.box.cluster, context.broker_address)
    answering = parts.broker_handlers() | accounts, namesrv_handlers(namesrv)
    governor, ports_seen = await _open_to_clients(nursery, config, ports, guard, answering)
    if ports.grpc:
        from appliance.grpc.opening import GrpcParts, serve_grpc  # few boxes have the port open

        served = GrpcParts(tables, broker.parts, broker.pop, store, guard.permissions, guard.keys, now_ms)
        await nursery.start(serve_grpc, config, ports.grpc, served, governor, guard.door)
    limits = GroupLimits(config.conditions.group_gone_s, config.conditions.group_behind_s)
    for loop in role.loops(ports.replication) if role else ():
        nursery.start_soon(loop)
    looked = ConditionSources(store, tables, uplink, now_ms, context.clock_trusted, limits, role)
    told, muting = begin_telling(nursery, looked, guard.conditions)
    await nursery.start(admin.serve_admin, context.runtime / admin.NAME, {**actions, **guard.actions(), **muting})
    store.retain = lambda base, end: end <= broker.keep_from() and shipped(base, end)
    host = context.own if config.listen.host not in LOCAL else LOOPBACK
    probe = Probe(host, ports.broker_port, ports.namesrv_port, guard.local_credentials)
    watch = _watch(context.supervision, store, probe, governor, told) if context.supervision else None
    board = await nursery.start(watch) if watch else None
    if board is not None and uplink is not None:
        uplink.shipper.state.health = board.summary
    seen = (broker.waiting, governor, ports_seen, board, uplink, now_ms, guard.door, role)
    await nursery.start(observe, BoxView(config, context.data, store, tables, *seen), context.runtime, probe.ask)


def _watch(
    supervision: Supervision, store: MessageStore, probe: Probe, governor: Governor, told: HealthParts
) -> Callable[..., Awaitable[None]]:
    return partial(supervision.watch, store, probe, refuse=governor.refuse_all, told=told)


async def _open_to_clients(
    nursery: trio.Nursery,
    config: Config,
    ports: Ports,
    guard: Guard,
    handlers: tuple[Mapping[int, Handle], Mapping[int, Handle]],
) -> tuple[Governor, dict[str, Callable[[], ResponderStatistics]]]:
    """Return what the connections share, and what was asked by port."""
    governor, seen = Governor(net_limits(config)), dict[str, Callable[[], ResponderStatistics]]()
    permissions, (broker, namesrv) = guard.permissions, handlers
    pull_codes = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    served = {"broker": (ports.broker, broker), "namesrv": (ports.namesrv, namesrv)}
    served |= {"vip": (ports.vip, without(broker, pull_codes))} if ports.vip else {}
    for name, (listeners, answering) in served.items():
        responder = Responder(answering, check=permissions)
        seen[name] = responder.statistics
        serving = partial(serve_remoting, listeners, responder, governor=governor, tls=guard.door)
        await nursery.start(partial(serving, allow=permissions.admits))
    return governor, seen


def _role(context: _ServeContext, store: MessageStore, tables: BrokerTables) -> "ReplicationRole":
    from appliance.replication.role import make_role  # few boxes are masters or slaves

    opened = list(context.ports.replication)
    port = sockets.port_of(opened) if opened else 0
    return make_role(context.config, store, tables, port, now_ms=context.now_ms)


def _registrar(
    config: Config, tables: BrokerTables, answered: AnsweredAddress, role: "ReplicationRole | None"
) -> "Registrar":
    from appliance.namesrv.registrar import Registrar, RegistrarRules  # few boxes have foreign name servers

    said, place = config.namesrv, (role.broker_id, role.ha_port) if role else ()
    rules = RegistrarRules(said.register_at, answered, said.register_s, config.broker.permission, *place)
    return Registrar(rules, tables.topics)


def _start_uplink(
    nursery: trio.Nursery, context: _ServeContext, store: MessageStore, space: Space
) -> tuple["Uplink", dict[str, admin.Action]]:
    """Ship the log from here on; return what says whether a segment may go, and what admin.sock may ask of it.

    Raises ConfigError.
    """
    from appliance.uplink_admin import uplink_actions  # none of it is loaded by a box without an uplink
    from uplink_spark.box.shipper import make_uplink
    from uplink_spark.errors import ConfigError as UplinkConfigError

    supervision, root = context.supervision, store.config.root
    root = supervision.ledger_root(root) if supervision else root
    settings = uplink_config(context.config, f"rocketbox {package_version()}")
    try:
        shipping = make_uplink(store, settings, root, now_ms=context.now_ms, clock_ok=context.clock_trusted)
    except UplinkConfigError as exc:
        raise ConfigError(
            "uplink", [ConfigProblem("uplink.gateway", context.config.uplink.gateway, str(exc), None)]
        ) from exc
    nursery.start_soon(shipping.run)
    space.refusal, space.rejected = shipping.refusal, shipping.note_rejected
    return shipping, uplink_actions(shipping, context.data / "uplink.secret")


async def _save(flushes: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Write what the tables hold back, at a stop of any kind."""
    with trio.move_on_after(FLUSH_S, shield=True):
        for flush in flushes:
            try:
                await flush()
            except OSError as exc:
                log.error("event=table_not_saved reason=%r", str(exc))


def namesrv_state(
    config: Config,
    data: Path,
    tables: BrokerTables,
    answered: AnsweredAddress,
    disk: Disk,
    *,
    role: "ReplicationRole | None" = None,
) -> NamesrvState:
    """Return the name server's tables; the box's own broker is a row that asks the topic table."""
    file = StateFile(disk, data / "namesrv" / "kvConfig.json")
    for text in free_tables(disk, data / "store", file.path.parent):
        log.error("event=set_aside reason=%r", text)
    try:
        kv = KvConfig.from_object(load_table(file, "kv") or None)
    except KvConfigDamaged as exc:
        log.error("event=table_damaged table=kv reason=%r next_step=restore_it_from_a_backup", str(exc))
        kv = KvConfig()
    place = (role.broker_id, role.master_address) if role else None
    return NamesrvState(
        routes=RouteTable(own_broker(tables.topics, config.broker.permission, place=place)),
        kv=kv,
        kv_saver=Saver(file, kv.to_object),
        address=lambda peer: answered(peer.local[0], peer.remote[0]),
        now_s=trio.current_time,
        order_messages=config.namesrv.order_messages,
        properties=partial(_namesrv_properties, config),
        slaves=role.own_slaves if role else None,
    )


def _namesrv_properties(config: Config) -> str:
    from appliance.apache_names import namesrv_properties  # tools ask, clients do not

    return properties_text(namesrv_properties(config)).decode()
