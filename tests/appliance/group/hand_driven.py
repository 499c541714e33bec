"""Groups that a test leads by hand: whole boxes in this process whose logs are copied by a task, without a link."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from appliance.configuration.config import load_config
from appliance.configuration.group_settings import read_members
from appliance.configuration.settings import Config
from appliance.group.driver import CopyCount, Divergence, GroupRefused, MemberProgress
from appliance.group.leadership import FOLLOWER, LEADER, Leadership, LeadershipState
from appliance.group.links.link_tls import MemberCertificates
from appliance.group.relay.relay import GrpcRelay
from appliance.ports import open_ports
from appliance.replication.slaves import SlavesSeen
from appliance.serve import serve
from storage_driver.log.lineage import AloneRange
from storage_driver.store import MessageStore
from tests.appliance.box import FACTS, Box
from tests.ports import apache_port

MEMBERS = ("a", "b")


class HandDriver:
    """A member's driver without a link: the group below says who leads and copies the logs."""

    def __init__(self, group: "HandGroup", member: str, store: MessageStore) -> None:
        self.member, self.store, self._group = member, store, group
        self.leadership = Leadership()
        self.diverged: Divergence | None = None
        self.served: SlavesSeen | None = None
        self.relay: GrpcRelay | None = None
        self.known = True  # how far the others are
        self.copies_there = len(MEMBERS)
        store.share(self._synced)

    def _synced(self, log_offset: int) -> None:
        if self.leadership.current.role == LEADER and not self._group.held:
            self.store.commit(log_offset)

    @property
    def orders(self) -> "HandDriver":
        return self

    @property
    def view(self) -> "HandDriver":
        return self

    def members(self) -> tuple[MemberProgress, ...]:
        found = self._group.drivers
        return tuple(
            MemberProgress(
                name,
                self._group.addresses[name],
                connected=name in found,
                synced=self._synced_of(name),
                behind_bytes=0 if self.known or name == self.member else None,
            )
            for name in MEMBERS
        )

    def copies(self) -> CopyCount:
        leads = self.leadership.current.role == LEADER
        return CopyCount(len(MEMBERS), self.copies_there if leads else None)

    def _synced_of(self, name: str) -> int:
        driver = self._group.drivers.get(name)
        return driver.store.synced if driver else 0

    def tell_committed(self) -> None:
        pass

    def certificates(self) -> MemberCertificates:
        return MemberCertificates(4_000_000_000_000)

    def divergence(self) -> Divergence | None:
        return self.diverged

    def alone(self) -> list[AloneRange]:
        return []

    def refused(self) -> dict[str, int]:
        return {"garbage": 2}

    def leads(self, term: int) -> bool:
        state = self.leadership.current
        return state.serves and state.term == term

    def slaves(self) -> SlavesSeen | None:
        return self.served

    async def promote(self, *, accept_loss: bool = False) -> None:
        await trio.lowlevel.checkpoint()
        if len(self._group.drivers) < len(MEMBERS) and not accept_loss:
            raise GroupRefused("the other box may have 3 acknowledged messages more: --accept-loss", lost_messages=3)
        self._group.lead(self.member)

    async def transfer(self, to: str) -> None:
        await trio.lowlevel.checkpoint()
        self._group.lead(to)

    async def demote(self) -> None:
        await trio.lowlevel.checkpoint()
        self._group.lead("")

    async def solo(self) -> None:
        await trio.lowlevel.checkpoint()

    async def join(self, member: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"{member} copies the log"

    async def remove(self, member: str) -> None:
        await trio.lowlevel.checkpoint()
        raise GroupRefused(f"{member} is not a member")

    async def hand_over(self) -> str:
        await trio.lowlevel.checkpoint()
        raise GroupRefused("there is no other box that could lead")

    async def leave(self) -> None:
        await trio.lowlevel.checkpoint()

    async def resync(self, *, discard: bool = False) -> None:
        await trio.lowlevel.checkpoint()


class HandGroup:
    """Two members; `held`: what the leader synced stays uncommitted."""

    def __init__(self) -> None:
        self.drivers: dict[str, HandDriver] = {}
        self.ports = {name: apache_port() for name in MEMBERS}
        self.addresses = {name: f"127.0.0.1:{port + 1}" for name, port in self.ports.items()}
        self.term, self.held = 0, False

    def lead(self, leader: str) -> None:
        """Let a member lead, "": nobody."""
        self.term += 1
        before = next((driver for driver in self.drivers.values() if driver.leadership.current.role == LEADER), None)
        for name, driver in self.drivers.items():
            driver.store.only_copies(None if name == leader else "this box does not lead")
            if before is not None and name == leader and driver is not before:
                self._copy(before.store, driver.store)
        address = f"127.0.0.1:{self.ports[leader]}" if leader else ""
        for name, driver in self.drivers.items():
            role = LEADER if name == leader else FOLLOWER
            driver.leadership.set(LeadershipState(role, self.term, leader, address, ready=name == leader))

    async def copy(self) -> None:
        """Bring the followers level with the leader, again and again."""
        while True:
            for driver in self.drivers.values():
                state = driver.leadership.current
                source = self.drivers.get(state.leader)
                if source is not None and source is not driver:
                    self._copy(source.store, driver.store)
            await trio.sleep(0.005)

    def _copy(self, source: MessageStore, target: MessageStore) -> None:
        if data := source.read_log(target.end, 1 << 20):
            target.append_raw(target.end, data)
        target.commit(min(source.committed, target.synced))

    @asynccontextmanager
    async def driver(
        self, config: Config, store: MessageStore, listeners: Sequence[trio.SocketListener]
    ) -> AsyncIterator[HandDriver]:
        assert set(read_members(config.group)) == set(MEMBERS)
        made = self.drivers[config.group.member] = HandDriver(self, config.group.member, store)
        try:
            yield made
        finally:
            del self.drivers[config.group.member]

    @asynccontextmanager
    async def box(self, name: str, data: Path, toml: str = "") -> AsyncIterator[Box]:
        """Run a member; leaving stops it."""
        members = ", ".join(f'"{each}={address}"' for each, address in self.addresses.items())
        text = (
            f"[listen]\nbroker_port = {self.ports[name]}\nnamesrv_port = 0\n"
            "[box]\nname = 'box'\n[store]\nsegment_mib = 16\n"
            f'[replication]\nrole = "member"\n[group]\nmember = "{name}"\nmembers = [{members}]\nelections = "manual"\n'
        )
        config = load_config(text + toml, source="test", facts=FACTS)
        ports = await open_ports(config, {})
        async with trio.open_nursery() as nursery:
            up = trio.Event()
            nursery.start_soon(partial(serve, config, data, ports, ready=lambda _: up.set(), open_driver=self.driver))
            await up.wait()
            yield Box(ports.broker_port, ports.namesrv_port, data)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def hand_pair(folder: Path, toml: str = "") -> AsyncIterator[tuple[HandGroup, dict[str, Box]]]:
    """Two members of which a leads."""
    group = HandGroup()
    async with trio.open_nursery() as nursery:
        opened: list[AbstractAsyncContextManager[Box]] = [group.box(name, folder / name, toml) for name in MEMBERS]
        async with opened[0] as first, opened[1] as second:
            group.lead("a")
            nursery.start_soon(group.copy)
            yield group, {"a": first, "b": second}
            nursery.cancel_scope.cancel()
