"""A box made a member of its group: its store, its files, its port. A start that cannot be right is refused here."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from appliance.access.access import accounts_path
from appliance.clock import clock_trusted
from appliance.configuration.group_settings import BOTH, MANUAL, ONE, read_members
from appliance.configuration.settings import Config
from appliance.errors import ConfigError, ConfigProblem
from appliance.group.account_copies import AccountCopies
from appliance.group.consensus_driver import ConsensusDriver
from appliance.group.copies.acknowledging import Acknowledgements
from appliance.group.copies.log_copy import LogCopy
from appliance.group.copies.topic_policies import TopicPolicies
from appliance.group.links.directory import addresses_of
from appliance.group.links.link import LinkPace
from appliance.group.links.link_port import LinkPort
from appliance.group.member_files import MemberFiles
from appliance.group.member_plan import GroupPlan, make_driver
from appliance.group.replacing import CopyReplacing
from appliance.replication.master import admitted
from appliance.replication.role import BESIDE_BODY, MIB
from appliance.replication.slaves import Slaves
from storage_driver.consensus.members import Members
from storage_driver.consensus.rules import Rules
from storage_driver.errors import ConsensusRefused, StateDamaged, StoreRefused, VoteFileDamaged
from storage_driver.files.disk import Disk, RealDisk
from storage_driver.log.clock import wall_ms
from storage_driver.log.cut_history import CutHistory
from storage_driver.log.truncation import Truncation
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore
from uplink_spark.errors import ConfigError as CertificateError

if TYPE_CHECKING:
    from appliance.group.relay.relayed_clients import RelayedClients


class OpenedMember(NamedTuple):
    """One member, ready to run."""

    driver: ConsensusDriver
    port: LinkPort
    waiting: Acknowledgements

    async def run(self, listeners: Sequence[trio.SocketListener]) -> None:
        """Take part in the group until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.port.serve, listeners)
            nursery.start_soon(self.waiting.run)
            await self.driver.run()


def open_member(
    plan: GroupPlan,
    store: MessageStore,
    *,
    disk: Disk,
    root: Path,
    certificates: Path,
    clock_ok: bool = True,
    committed: int,
) -> OpenedMember:
    """Return a member over its opened store. Blocks. Raises as `make_driver`."""
    copy = _copy_of(store, disk, root)
    files = MemberFiles(disk, root)
    driver = make_driver(plan, store, copy, certificates, files, clock_ok=clock_ok, committed=committed)
    marks = (store.bound_answers(), driver.view.copied.waiting)
    waiting = Acknowledgements(marks, wait_s=plan.wait_ms / 1000, why=driver.view.why_not_copied)
    store.policies = TopicPolicies(plan.rules, store, driver.view)
    stock = plan.slaves.serve_one if plan.slaves is not None else None
    return OpenedMember(driver, LinkPort(driver.links, stock), waiting)


def _copy_of(store: MessageStore, disk: Disk, root: Path) -> LogCopy:
    def begin_again(members: Members, discard: bool) -> None:
        CopyReplacing(disk, root).begin(members, discard=discard, now_ms=wall_ms())

    cut, cuts = Truncation(disk, root).begin, CutHistory(disk, root).load()
    return LogCopy(store, cut, cuts, begin_again, unread=lambda: store.copies.unread)


def plan_of(config: Config, host: bytes) -> GroupPlan:
    """Return what is configured."""
    said = config.group
    members = addresses_of(read_members(said).values())
    rules = Rules(
        elections="manual" if said.elections == MANUAL else "automatic",
        acknowledge="both" if said.acknowledge == BOTH else "one" if said.acknowledge == ONE else "local",
        copies=said.copies,
        preferred=said.preferred,
        scale=said.timing,
    )
    most, rate = config.limits.message_mib * MIB + BESIDE_BODY, said.catch_up_mib_s * MIB
    return GroupPlan(config.box.name, said.member, members, rules, LinkPace(), most, host, said.wait_ms, rate)


def _slaves(config: Config, store: MessageStore) -> Slaves | None:
    """Return what serves Apache's slaves, None where none is named; what this member has committed is theirs."""
    said = config.replication
    return Slaves(store, admits=admitted(said.slaves), most=said.most_slaves) if said.slaves else None


def _relayed(config: Config) -> "RelayedClients | None":
    if not config.grpc.port:
        return None
    from appliance.group.relay.relayed_clients import RelayedClients  # few boxes have the port open

    return RelayedClients()


@asynccontextmanager
async def open_driver(
    config: Config, store: MessageStore, listeners: Sequence[trio.SocketListener]
) -> AsyncIterator[ConsensusDriver]:
    """Take part in the configured group; yields what is asked. Raises ConfigError, StoreRefused, OSError."""
    opening = partial(
        open_member,
        plan_of(config, store.config.store_host)._replace(
            accounts=AccountCopies(accounts_path(store.config.root.parent, config.access.accounts)),
            slaves=_slaves(config, store),
            relayed=_relayed(config),
        ),
        store,
        disk=RealDisk(),
        root=store.config.root,
        certificates=Path(config.group.certs or config.uplink.certs),
        clock_ok=clock_trusted(),
        committed=store.committed,
    )
    try:
        member = await trio.to_thread.run_sync(opening)
    except CertificateError as exc:
        certs = config.group.certs or config.uplink.certs
        raise ConfigError("group", [ConfigProblem("group.certs", certs, str(exc), None)]) from exc
    except (ConsensusRefused, VoteFileDamaged, StateDamaged) as exc:
        raise StoreRefused(str(exc)) from exc
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.run, listeners)
        yield member.driver
        nursery.cancel_scope.cancel()
