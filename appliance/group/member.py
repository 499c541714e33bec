"""A member of a group: the broker is composed anew from what is on disk whenever this box begins or ends to lead.

What a start does is what a change of role does: the tables' files are brought to the end of what is committed, then
the broker is made of them. Ports and connections of clients stay open, and requests wait meanwhile.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from appliance import admin
from appliance.broker.broker_tables import BrokerTables
from appliance.broker.consume.queue_locks import SavedLocks
from appliance.broker.tables.saving import KeptFiles
from appliance.configuration.group_settings import AUTOMATIC, BOTH
from appliance.configuration.settings import Config
from appliance.errors import ConfigError, ConfigProblem
from appliance.group.address.floating import Floating
from appliance.group.address.floating_frames import read_floating
from appliance.group.driver import GroupDriver, GroupRefused
from appliance.group.kept_connections import KeptConnections
from appliance.group.leadership import LEADER, Leadership, LeadershipState
from appliance.group.member_role import MemberRole
from appliance.group.member_view import who_is_missed
from appliance.group.orders import group_actions
from appliance.group.single_answers import SingleAnswers
from appliance.group.state.shared_history import SharedHistory
from appliance.group.state.state_applier import StateApplier, StateFiles, open_files
from appliance.group.state.state_log import FollowerFiles, LeaderFiles, StateLog
from appliance.group.state.state_snapshots import RELEASE, Snapshots, read_release
from appliance.namesrv.composition import kv_file
from appliance.namesrv.handlers import OwnSlaves
from appliance.opening import ServeContext
from appliance.ports import Ports
from appliance.replication.master import admitted
from appliance.requests import Handle
from appliance.standing import MayGo, Standing
from storage_driver.files.disk import Disk
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore
from uplink_spark.errors import ConfigError as CertificateError

if TYPE_CHECKING:
    from appliance.grpc.parts import GroupPort

log = logging.getLogger("appliance.group")
AGAIN_S = 1.0
Serve = Callable[[Standing], Awaitable[None]]
TakeMore = Callable[[Mapping[str, admin.Action]], None]
OpenDriver = Callable[[Config, MessageStore, Sequence[trio.SocketListener]], AbstractAsyncContextManager[GroupDriver]]


class MemberParts(NamedTuple):
    """What a member is made of, as long as the box runs."""

    context: ServeContext
    store: MessageStore
    files: StateFiles
    applier: StateApplier
    driver: GroupDriver
    floating: Floating | None


async def run_member(
    context: ServeContext, store: MessageStore, disk: Disk, serve: Serve, *, open_driver: OpenDriver
) -> None:
    """Follow or lead until cancelled; `serve` runs the broker of one standing until it is cancelled."""
    kv_file(context.data, disk)
    files = open_files(store, disk, context.data)
    section = context.config.group
    async with AsyncExitStack() as stack:
        try:
            opening = open_driver(context.config, store, context.ports.replication)
            driver = await stack.enter_async_context(opening)
        except CertificateError as exc:
            raise ConfigError("group", [ConfigProblem("group.certs", section.certs, str(exc), None)]) from exc
        floating = Floating(read_floating(section.address), section.timing) if section.address else None
        parts = MemberParts(context, store, files, StateApplier(store, files), driver, floating)
        if floating is not None:
            floating.give_up()  # a process before this one may have left it
        fixed = group_actions(driver)
        actions: dict[str, admin.Action] = dict(fixed)
        if context.supervision is not None and section.elections == AUTOMATIC:
            context.supervision.farewells.append(partial(_leave_the_lead, driver))
        async with trio.open_nursery() as nursery:
            await nursery.start(admin.serve_admin, context.runtime / admin.NAME, actions)
            kept = KeptConnections(nursery, partial(_why_it_waits, driver, both=section.acknowledge == BOTH))
            if floating is not None:
                nursery.start_soon(floating.run, partial(kept.end_at, str(floating.address)))
            while True:
                state = await caught_up(parts.applier, driver.leadership)
                turn = Turn(parts, state, lambda more: actions.update({**more, **fixed}), kept)
                await turn.run(serve)


def _why_it_waits(driver: GroupDriver, *, both: bool) -> str:
    """Return for whom a leader waits that does not serve yet; "" where it waits for nobody."""
    leads = driver.leadership.current.role == LEADER
    return who_is_missed(driver.view.members(), driver.member) if leads and both else ""


async def _leave_the_lead(driver: GroupDriver) -> None:
    """Let another box lead before this one ends: nobody has to wait for an election."""
    try:
        await driver.orders.hand_over()
    except GroupRefused as exc:
        log.warning("event=not_handed_over reason=%r next_step=none", str(exc))


class Applies(Protocol):
    """Brings files to the end of what was committed when it began; what is damaged is mended first."""

    async def mend(self) -> None: ...
    async def apply(self) -> frozenset[str]: ...


async def caught_up(applier: Applies, leadership: Leadership) -> LeadershipState:
    """Bring the tables' files to the end of what is committed; return the state for which they have everything.

    Who began to lead meanwhile may have committed what was not looked at. Who cannot catch up does not serve.
    """
    while True:
        state = leadership.current
        try:
            await applier.mend()
            await applier.apply()
        except OSError as exc:
            log.error("event=not_serving reason=%r next_step='check the disk'", f"tables: {exc}")
            await trio.sleep(AGAIN_S)
        else:
            if leadership.current == state:
                return state


class Turn:
    """One standing of a member, from one change to the next."""

    def __init__(self, parts: MemberParts, state: LeadershipState, take: TakeMore, kept: KeptConnections) -> None:
        self._parts, self._state, self._take, self._kept = parts, state, take, kept
        self._tables: BrokerTables | None = None
        self._may_go: MayGo = lambda base, end: False
        self._log = StateLog(
            parts.store,
            parts.context.store_host,
            now_ms=parts.context.now_ms,
            on_committed=parts.driver.tell_committed,
        )
        self._release = read_release(parts.files)
        self._locks: SavedLocks | None = None

    async def run(self, serve: Serve) -> None:
        """Serve until this member begins or ends to lead."""
        state, leadership = self._state, self._parts.driver.leadership
        if state.serves:
            leadership.broker_began()
        try:
            await self._run(serve)
        finally:
            self._log.end("this box leads no longer")
            leadership.broker_ended()

    async def _run(self, serve: Serve) -> None:
        parts, state = self._parts, self._state
        log.info("event=serving as=%s term=%d leader=%s", state.role, state.term, state.leader or "-")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_at_change, nursery.cancel_scope)
            nursery.start_soon(parts.applier.run, self._applied)
            if state.serves:
                history = SharedHistory(parts.store, self._log, parts.files, parts.context.config.uplink.express)
                size = parts.store.segment_bytes
                nursery.start_soon(
                    Snapshots(
                        parts.store, self._log, parts.applier, parts.files, segment_bytes=size, below=self._below
                    ).run
                )
                await history.take_over()
                nursery.start_soon(history.run)
            await serve(self._standing())

    async def _end_at_change(self, scope: trio.CancelScope) -> None:
        was = self._state
        now = await self._parts.driver.leadership.wait_for(
            lambda state: state.serves != was.serves or (was.serves and state.term != was.term)
        )
        if now.role != LEADER:
            self._log.end(f"{now.leader or 'nobody'} leads now, term {now.term}")
        scope.cancel()

    def _files(self) -> KeptFiles:
        files = self._parts.files
        return LeaderFiles(files, self._log) if self._state.serves else FollowerFiles(files)

    def _standing(self) -> Standing:
        kept = self._files()
        return Standing(
            kept.state_file("kvConfig", folder="namesrv"),
            kept,
            self._role,
            follows=not self._state.serves,
            saves=self._may_save,
            floor=self._floor,
            answering=self._answering,
            composed=self._composed,
            ports=Ports.again,
            clients=self._kept,
            take_actions=self._take_actions,
            grpc=self._grpc(),
        )

    def _grpc(self) -> "GroupPort | None":
        relay, floating = self._parts.driver.relay, self._parts.floating
        if relay is None:
            return None
        if self._state.serves:
            return relay.leading(floating=floating is not None)
        return relay.following(str(floating.address) if floating is not None else "")

    def _may_save(self) -> bool:
        """Return whether the log takes what the tables hold back: on this disk alone it is of no use."""
        return self._state.serves and self._parts.driver.leadership.parting

    def _role(self, tables: BrokerTables) -> MemberRole:
        parts, port = self._parts, self._parts.context.ports.replication_port
        reads_here = parts.context.config.group.elections != AUTOMATIC
        role = MemberRole(parts.driver, parts.store, ha_port=port, serves=self._state.serves, reads_here=reads_here)
        if parts.floating is not None:
            role.floating = str(parts.floating.address)
        if slaves := parts.context.config.replication.slaves:
            role.own_slaves = OwnSlaves(admitted(slaves), port)
        return role

    def _answering(self, tables: BrokerTables, handlers: dict[int, Handle]) -> dict[int, Handle]:
        """Return what the broker of this standing answers: a leader as if there were no other box."""
        if not self._state.serves:
            return handlers
        self._locks = SavedLocks(tables.locks, self._files().state_file("queueLocks", folder="rocketbox"))
        leads = partial(self._parts.driver.view.leads, self._state.term)
        return SingleAnswers(leads, tables.offsets, self._locks).over(handlers)

    def _composed(self, tables: BrokerTables, may_go: MayGo) -> None:
        self._tables, self._may_go = tables, may_go

    async def _take_actions(self, nursery: trio.Nursery, runtime: Path, actions: Mapping[str, admin.Action]) -> None:
        await trio.lowlevel.checkpoint()
        self._take(actions)
        if self._locks is not None:
            nursery.start_soon(self._locks.run)
        if self._parts.floating is not None and self._state.serves:
            nursery.start_soon(self._parts.floating.hold)

    def _floor(self) -> int:
        return min(self._parts.applier.floor, self._release.floor)

    def _below(self) -> int:
        """Return the log offset below which the leader's own parts need nothing."""
        below = self._parts.store.first
        for segment in self._parts.store.segments():
            if not self._may_go(segment.base, segment.end):
                break
            below = segment.end
        return below

    async def _applied(self, changed: frozenset[str]) -> None:
        """Take what the log changed: a follower's tables; what all members still need."""
        await trio.lowlevel.checkpoint()
        if RELEASE in changed:
            self._release = read_release(self._parts.files)
        tables = self._tables
        if tables is None or self._state.serves:
            return
        for name, table in _followed(tables).items():
            if name in changed:
                table.load_again()


class Followed(Protocol):
    """A table that others write."""

    def load_again(self) -> None: ...


def _followed(tables: BrokerTables) -> dict[str, Followed]:
    return {
        "config/topics": tables.topics,
        "config/subscriptionGroup": tables.groups,
        "config/consumerOffset": tables.offsets,
    }
