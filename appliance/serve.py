"""Run the box: parts built from the bottom up, cancelled from the top down. The only file that knows them all."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from appliance import admin
from appliance.access.guard import Guard, make_guard
from appliance.box_view import BoxView
from appliance.broker.assembly import Assembled, assemble, assignment_handlers
from appliance.broker.broker_tables import BrokerTables, make_tables, rebuild_dedup
from appliance.broker.intake import Space
from appliance.broker.tables.arrivals import Arrivals
from appliance.clock import clock_trusted
from appliance.configuration.parts import net_limits, page_hint, uplink_config
from appliance.configuration.settings import ALONE, MEMBER_ROLE, SLAVE_ROLE, Config
from appliance.device.probe import Probe
from appliance.errors import ConfigError, ConfigProblem
from appliance.health.condition_watch import ConditionSources
from appliance.health.group_watch import GroupLimits
from appliance.health.telling import begin_telling
from appliance.interfaces import own_address, read_interfaces, remembered
from appliance.namesrv.address import AnsweredAddress
from appliance.namesrv.composition import kv_file, namesrv_state
from appliance.namesrv.handlers import NamesrvState, expire_brokers, namesrv_handlers
from appliance.observation import observe
from appliance.opening import ServeContext, open_box_store
from appliance.ports import Ports
from appliance.requests import Handle, Responder, ResponderStatistics, without
from appliance.sockets import port_of
from appliance.standing import ClientPorts, Standing
from appliance.supervision import HealthParts, Supervision
from appliance.version import package_version
from netstack.serving.addresses import host_port, is_loopback
from netstack.serving.governor import Governor
from netstack.serving.server import serve_remoting
from netstack.wire.codes import RequestCode
from storage_driver.files.disk import Disk
from storage_driver.log.clock import wall_ms
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore

if TYPE_CHECKING:
    from appliance.group.member import OpenDriver
    from appliance.grpc.parts import GroupPort
    from appliance.namesrv.registrar import Registrar
    from appliance.replication.role import ReplicationRole
    from netstack.grpc.call_counts import CallStatistics
    from uplink_spark.box.shipper import Uplink

log = logging.getLogger("appliance")
FLUSH_S = 3.0  # for the tables at a stop; the process has five seconds in all


class Ready(NamedTuple):
    """What the box says when it serves."""

    namesrv: str
    broker: str
    data: Path
    verdict: str
    took_ms: int = 0  # since this standing of the box began

    def line(self, started_ms: int) -> str:
        """Return the one line of `serve`."""
        return (
            f"ready namesrv={self.namesrv} broker={self.broker} data={self.data} "
            f"recovered={self.verdict} in {started_ms} ms"
        )


def always(base: int, end: int) -> bool:
    """Without an uplink only age and disk marks count."""
    return True


async def serve(
    config: Config,
    data: Path,
    ports: Ports,
    *,
    ready: Callable[[Ready], None],
    supervision: Supervision | None = None,
    now_ms: Callable[[], int] = wall_ms,
    clock_trusted: Callable[[], bool] = clock_trusted,
    open_driver: "OpenDriver | None" = None,
) -> None:
    """Run the box until cancelled; `ready`: both ports answer. Raises StoreRefused, ConfigError, OSError."""
    own = own_address(config.listen.host, remembered(read_interfaces))
    guard = make_guard(config, data, now_ms=now_ms)
    context = ServeContext(config, data, ports, own, guard, supervision, now_ms, clock_trusted)
    arrivals = Arrivals(config.limits.parked_pulls, lambda queue: store.max_offset(queue))
    if config.replication.role == MEMBER_ROLE:
        from appliance.group.beginning import begin_empty  # few boxes are members of a group
        from appliance.group.replacing import give_up_begun

        await trio.to_thread.run_sync(give_up_begun, data / "store")
        await trio.to_thread.run_sync(begin_empty, data / "store")
    async with open_box_store(context, arrivals) as (store, disk, context):
        serving = partial(_serve_as, context, store, arrivals)
        if config.replication.role == MEMBER_ROLE:
            from appliance.group import opening  # few boxes are members of a group
            from appliance.group.member import run_member

            opened = open_driver or opening.open_driver
            await run_member(context, store, disk, partial(serving, ready=ready), open_driver=opened)
        else:
            await serving(_standing(context, store, disk), ready=ready)


def _standing(context: ServeContext, store: MessageStore, disk: Disk) -> Standing:
    """Return how a box stands that is no member of a group."""
    role = context.config.replication.role
    make_role = partial(_role, context, store) if role != ALONE else None
    return Standing(kv_file(context.data, disk), None, make_role, role == SLAVE_ROLE)


async def _serve_as(
    context: ServeContext,
    store: MessageStore,
    arrivals: Arrivals,
    standing: Standing,
    *,
    ready: Callable[[Ready], None],
) -> None:
    """Compose the broker from what is on disk, and serve until cancelled, which is also the end of a standing."""
    config, ports, now_ms, own = context.config, context.ports, context.now_ms, context.own
    began_s = trio.current_time()
    tables = make_tables(config, store, arrivals, files=standing.files, now_ms=now_ms)
    await rebuild_dedup(tables, store, now_ms=now_ms)
    composing = partial(assemble, files=standing.files, follows=standing.follows, now_ms=now_ms)
    broker = composing(config, store, tables, context.broker_address)
    answered = AnsweredAddress(config.advertise.rules, ports.broker_port, remembered(read_interfaces), own)
    role = standing.make_role(tables) if standing.make_role else None
    namesrv = namesrv_state(config, tables.topics, answered, standing.kv_file, role=role)
    registrar = _registrar(config, tables, answered, role) if config.namesrv.register_at else None
    parts = _Parts(store, tables, broker, namesrv, role, registrar, standing.grpc)
    try:
        async with trio.open_nursery() as nursery:
            for loop in (*broker.loops, namesrv.kv_saver.run, *context.guard.loops):
                nursery.start_soon(loop)
            nursery.start_soon(expire_brokers, namesrv.routes, namesrv.now_s)
            await _let_in(nursery, context, parts, standing)
            if registrar:
                nursery.start_soon(registrar.run)
            verdict = store.verdict.verdict
            said = host_port(own, ports.namesrv_port), context.broker_address, context.data, verdict
            ready(Ready(*said, took_ms=round(1000 * (trio.current_time() - began_s))))
    finally:
        if standing.saves():
            await _save((*broker.flushes, namesrv.kv_saver.flush))


class _Parts(NamedTuple):
    """What is to be opened to clients, and looked at."""

    store: MessageStore
    tables: BrokerTables
    broker: Assembled
    namesrv: NamesrvState
    role: "ReplicationRole | None"
    registrar: "Registrar | None"
    grpc: "GroupPort | None"

    def broker_handlers(self, accounts: dict[int, Handle]) -> dict[int, Handle]:
        """Return what the broker answers: its own requests, those of its role, and who reads which queue."""
        answering = self.broker.handlers | accounts | (self.role.handlers() if self.role else {})
        if self.registrar:  # others know more brokers
            return answering | self.registrar.telling(answering)
        return answering | assignment_handlers(self.tables, self.namesrv.routes.readable)

    def namesrv_handlers(self) -> dict[int, Handle]:
        """Return what the name server answers; what a role refuses of it is refused here, too."""
        answering, refused = namesrv_handlers(self.namesrv), self.role.handlers() if self.role else {}
        return {code: refused.get(code, handle) for code, handle in answering.items()}


async def _let_in(nursery: trio.Nursery, context: ServeContext, parts: _Parts, standing: Standing) -> None:
    """Start the uplink, open the ports to clients and tools, then let the watchdog and the observers look."""
    config, guard, now_ms = context.config, context.guard, context.now_ms
    store, tables, broker, _, role, *_ = parts
    ships, ports = bool(config.uplink.gateway) and not standing.follows, standing.ports(context.ports)
    uplink, actions = _start_uplink(nursery, context, store, tables.space) if ships else (None, {})
    shipped = uplink.may_release if uplink else always
    accounts = guard.handlers(config.box.name, config.box.cluster, context.broker_address)
    answering = standing.answering(tables, parts.broker_handlers(accounts)), parts.namesrv_handlers()
    opening = partial(_open_to_clients, nursery, config, ports, guard)
    governor, ports_seen = await opening(answering, clients=standing.clients)
    calls = await _open_grpc(nursery, context, parts, ports, governor) if ports.grpc else None
    limits = GroupLimits(config.conditions.group_gone_s, config.conditions.group_behind_s)
    for loop in role.loops(ports.replication) if role else ():
        nursery.start_soon(loop)
    looked = ConditionSources(store, tables, uplink, now_ms, context.clock_trusted, limits, role)
    memory = context.supervision.memory if context.supervision else None
    told, muting = begin_telling(nursery, looked, guard.conditions, memory)
    told = told._replace(more=partial(_with_page, told.more, config))
    await standing.take_actions(nursery, context.runtime, {**actions, **guard.actions(), **muting})
    store.retain = lambda base, end: end <= min(broker.keep_from(), standing.floor()) and shipped(base, end)
    standing.composed(tables, lambda base, end: end <= broker.keep_from() and shipped(base, end))
    probe = Probe(ports.near(context.own), ports.broker_port, ports.namesrv_port, guard.local_credentials)
    watch = _watch(context.supervision, store, probe, governor, told) if context.supervision else None
    board = await nursery.start(watch) if watch else None
    if board is not None and ports.grpc:
        board.opened("grpc", port_of(ports.grpc))
    if board is not None and uplink is not None:
        uplink.shipper.state.health = board.summary
    seen = (broker.waiting, governor, ports_seen, board, uplink, now_ms, guard.door, role, calls)
    view = BoxView(config, context.data, store, tables, *seen)
    admits = _anybody if is_loopback(config.listen.host) else guard.permissions.admits
    await nursery.start(observe, view, context.runtime, probe.ask, admits)


def _anybody(address: str) -> bool:
    """Admit to page and metrics of a box whose clients are on this machine: who opened them said for whom."""
    return True


def _with_page(more: Callable[[], Mapping[str, Any]], config: Config) -> Mapping[str, Any]:
    """Return what the health tells besides, and where the page is, for commands that know no configuration file."""
    page = config.page
    return {**more(), "page": {"host": page.host, "port": page.port}} if page.port else more()


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
    *,
    clients: ClientPorts,
) -> tuple[Governor, dict[str, Callable[[], ResponderStatistics]]]:
    """Return what the connections share, and what was asked by port."""
    governor = clients.governor(net_limits(config), page_hint(config.page))
    seen: dict[str, Callable[[], ResponderStatistics]] = {}
    permissions, (broker, namesrv) = guard.permissions, handlers
    pull_codes = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    served = {"broker": (ports.broker, broker), "namesrv": (ports.namesrv, namesrv)}
    served |= {"vip": (ports.vip, without(broker, pull_codes))} if ports.vip else {}
    for name, (listeners, answering) in served.items():
        responder = Responder(answering, check=permissions)
        seen[name] = responder.statistics
        serving = partial(serve_remoting, listeners, governor=governor, tls=guard.door, allow=permissions.admits)
        await clients.serve(nursery, name, responder, serving)
    return governor, seen


async def _open_grpc(
    nursery: trio.Nursery, context: ServeContext, parts: _Parts, ports: Ports, governor: Governor
) -> "Callable[[], CallStatistics]":
    """Open the port of RocketMQ 5 clients; return what was asked there."""
    from appliance.grpc.opening import GrpcParts, serve_grpc  # few boxes have the port open
    from netstack.grpc.call_counts import CallCounts

    guard, broker, counts = context.guard, parts.broker, CallCounts()
    rights = (guard.permissions, guard.keys, counts, context.now_ms)
    served = GrpcParts(parts.tables, broker.parts, broker.pop, parts.store, *rights)
    if parts.role is not None and context.config.replication.role == MEMBER_ROLE:
        from appliance.replication.role import leader_host

        served = served._replace(leader_host=partial(leader_host, parts.role), group=parts.grpc)
    await nursery.start(serve_grpc, context.config, ports.grpc, served, governor, guard.door)
    return counts.statistics


def _role(context: ServeContext, store: MessageStore, tables: BrokerTables) -> "ReplicationRole":
    from appliance.replication.role import make_role  # few boxes are masters or slaves

    return make_role(context.config, store, tables, context.ports.replication_port, now_ms=context.now_ms)


def _registrar(
    config: Config, tables: BrokerTables, answered: AnsweredAddress, role: "ReplicationRole | None"
) -> "Registrar":
    from appliance.namesrv.registrar import Registrar, RegistrarRules  # few boxes have foreign name servers

    said, place = config.namesrv, (role.broker_id, role.ha_port) if role else ()
    rules = RegistrarRules(said.register_at, answered, said.register_s, config.broker.permission, *place)
    return Registrar(rules, tables.topics)


def _start_uplink(
    nursery: trio.Nursery, context: ServeContext, store: MessageStore, space: Space
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
