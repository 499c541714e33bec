"""A member made of its parts: what a box does to take part in a group. A start that cannot be right is refused here."""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import SystemRandom

import trio

from appliance.access.access import accounts_path
from appliance.clock import clock_trusted
from appliance.configuration.group_settings import BOTH, MANUAL, ONE, read_member, read_members
from appliance.configuration.settings import Config
from appliance.errors import ConfigError, ConfigProblem
from appliance.group.account_copies import AccountCopies
from appliance.group.consensus_driver import ConsensusDriver
from appliance.group.copies.acknowledging import Acknowledgements
from appliance.group.copies.feed import Feed
from appliance.group.copies.lag import LogAges
from appliance.group.copies.log_copy import LogCopy
from appliance.group.copies.missing import MissingMessages
from appliance.group.copies.shipping import Shipping
from appliance.group.copies.topic_policies import TopicPolicies
from appliance.group.event_queue import EventQueue
from appliance.group.leadership import Leadership
from appliance.group.links.directory import MemberAddress, MemberDirectory, addresses_of
from appliance.group.links.frames import ACCOUNTS, LinkFrameDecoder
from appliance.group.links.link import LinkClocks, LinkPace
from appliance.group.links.link_port import LinkPort
from appliance.group.links.link_tls import LinkTls
from appliance.group.links.links import LinkUser, MemberLinks
from appliance.group.links.message_frames import APPEND
from appliance.group.member_files import MemberFiles
from appliance.group.member_parts import DriverClocks, DriverParts, MemberLog, MemberRules
from appliance.group.replacing import CopyReplacing
from appliance.group.wishes import Wishes
from appliance.group.witness_log import WitnessLog
from appliance.replication.master import admitted
from appliance.replication.role import BESIDE_BODY, MIB
from appliance.replication.slaves import Slaves
from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import Start
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.rules import Rules
from storage_driver.errors import ConsensusRefused, StateDamaged, StoreRefused, VoteFileDamaged
from storage_driver.files.disk import Disk, RealDisk
from storage_driver.files.state_file import StateFile
from storage_driver.log.clock import wall_ms
from storage_driver.log.cut_history import CutHistory
from storage_driver.log.lineage import Lineage
from storage_driver.log.truncation import Truncation
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore
from uplink_spark.errors import ConfigError as CertificateError

WITH_BYTES = frozenset({APPEND, ACCOUNTS})
COPIES_ONLY = "this member of a group does not lead it"


class GroupPlan(NamedTuple):
    """What is configured of a group, on one member."""

    group: str
    member: str
    members: Mapping[str, MemberAddress]
    rules: Rules = Rules()
    pace: LinkPace = LinkPace()
    most_record_bytes: int = 5 << 20
    host: bytes = b"\x7f\0\0\1\0\0\0\0"  # of the records that a leader appends of its own
    wait_ms: int = 3000
    catch_up_bytes_s: int = 0
    accounts: Path | None = None  # the file of access keys
    slaves: Slaves | None = None  # what serves Apache's

    def first_members(self) -> Members:
        """Return the members that a log without any begins with."""
        boxes = tuple(name for name, member in self.members.items() if not member.witness)
        return Members(boxes, tuple(name for name, member in self.members.items() if member.witness))

    def of_member(self) -> MemberRules:
        """Return what the driver needs of it."""
        directory, rate = MemberDirectory(self.member, self.members), self.catch_up_bytes_s
        accounts = AccountCopies(self.accounts) if self.accounts is not None else None
        own = MemberRules(self.group, self.member, directory, self.host, self.rules.scale, rate, accounts)
        return own._replace(slaves=self.slaves)


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


def boottime_s() -> float:
    """Return the seconds since the start of this machine, those that it was suspended for included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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
    """Return a member over its opened store. Blocks.

    Raises ConfigError (certificates), VoteFileDamaged, StateDamaged, ConsensusRefused, OSError.
    """
    driver = make_driver(plan, store, disk, root, certificates, clock_ok=clock_ok, committed=committed)
    marks = (store.bound_answers(), driver.view.copied.waiting)
    waiting = Acknowledgements(marks, wait_s=plan.wait_ms / 1000, why=driver.view.why_not_copied)
    store.policies = TopicPolicies(plan.rules, store, driver.view)
    stock = plan.slaves.serve_one if plan.slaves is not None else None
    return OpenedMember(driver, LinkPort(driver.links, stock), waiting)


def make_driver(
    plan: GroupPlan,
    store: MemberLog,
    disk: Disk,
    root: Path,
    certificates: Path,
    *,
    clock_ok: bool,
    committed: int,
) -> ConsensusDriver:
    """Return the driver of a box or, over a log that is none, of a witness. Blocks. Raises as `open_member`."""
    tls, files = LinkTls(certificates, clock_ok=clock_ok), MemberFiles(disk, root)
    hard, table = files.open(plan.first_members(), first=store.first, end=store.end)
    if plan.members[plan.member].witness:  # nobody sends it the log that says who belongs to the group
        table = table._replace(configs=(MembersAt(-1, plan.first_members()),))

    def begin_again(members: Members, discard: bool) -> None:
        CopyReplacing(disk, root).begin(members, discard=discard, now_ms=wall_ms())

    core = Core(plan.member, plan.rules, Start(hard, table, store.first, store.end, committed), boottime_s())
    copy = LogCopy(store, Truncation(disk, root).begin, CutHistory(disk, root).load(), begin_again)
    driver = ConsensusDriver(
        _parts_of(plan, core, store, copy, lambda: driver.ship()),
        files=files,
        session=secrets.token_bytes(8),
        make_links=partial(_make_links, plan, tls, LinkClocks(boottime_s, wall_ms)),
    )
    return driver


def _parts_of(plan: GroupPlan, core: Core, store: MemberLog, copy: LogCopy, ship: Callable[[], None]) -> DriverParts:
    rules, clocks = plan.of_member(), DriverClocks(boottime_s, wall_ms, SystemRandom().random)
    read = partial(store.read_log, synced=True)
    feed = Feed(read, segment_bytes=store.segment_bytes, synced=lambda: store.synced)
    shipping, missing = Shipping(core, feed, ship=ship, rate=rules.catch_up_bytes_s), MissingMessages(LogAges())
    return DriverParts(rules, core, store, Leadership(), clocks, EventQueue(), Wishes(), shipping, copy, missing)


def witness_plan(group: str, member: str, members: Sequence[str], scale: float) -> GroupPlan:
    """Return the plan of a witness; `members` as in `group.members` of the boxes."""
    return GroupPlan(group, member, addresses_of(map(read_member, members)), Rules(scale=scale))


async def run_witness(
    plan: GroupPlan, data: Path, certificates: Path, listeners: Sequence[trio.SocketListener]
) -> None:
    """Vote in a group until cancelled. Raises as `open_member`."""
    disk = RealDisk()

    def opening() -> ConsensusDriver:
        (data / "rocketbox").mkdir(parents=True, exist_ok=True)
        lineage = Lineage(StateFile(disk, data / "rocketbox" / "identity.json"), lambda: 1)
        return make_driver(plan, WitnessLog(lineage), disk, data, certificates, clock_ok=clock_trusted(), committed=0)

    driver = await trio.to_thread.run_sync(opening)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(LinkPort(driver.links).serve, listeners)
        await driver.run()


def _make_links(plan: GroupPlan, tls: LinkTls, clocks: LinkClocks, user: LinkUser) -> MemberLinks:
    def new_decoder() -> LinkFrameDecoder:
        return LinkFrameDecoder(most_record_bytes=plan.most_record_bytes, with_bytes=WITH_BYTES)

    return MemberLinks(tls, user, new_decoder=new_decoder, clocks=clocks, pace=plan.pace)


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


@asynccontextmanager
async def open_driver(
    config: Config, store: MessageStore, listeners: Sequence[trio.SocketListener]
) -> AsyncIterator[ConsensusDriver]:
    """Take part in the configured group; yields what is asked. Raises ConfigError, StoreRefused, OSError."""
    opening = partial(
        open_member,
        plan_of(config, store.config.store_host)._replace(
            accounts=accounts_path(store.config.root.parent, config.access.accounts),
            slaves=_slaves(config, store),
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
