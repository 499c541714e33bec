"""A member's driver made of its plan, over any log: that of a box, or that of a witness, which is none."""

from __future__ import annotations

import secrets
import time
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING

from appliance.group.consensus_driver import ConsensusDriver
from appliance.group.copies.feed import Feed
from appliance.group.copies.lag import LogAges
from appliance.group.copies.missing import MissingMessages
from appliance.group.copies.shipping import Shipping
from appliance.group.event_queue import EventQueue
from appliance.group.leadership import Leadership
from appliance.group.links.directory import MemberDirectory
from appliance.group.links.frames import ACCOUNTS, LinkFrameDecoder
from appliance.group.links.link import LinkClocks, LinkPace
from appliance.group.links.link_tls import LinkTls
from appliance.group.links.links import LinkUser, MemberLinks
from appliance.group.links.message_frames import APPEND
from appliance.group.member_files import MemberFiles
from appliance.group.member_parts import DriverClocks, DriverParts, MemberRules
from appliance.group.wishes import Wishes
from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import Start
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.rules import Rules
from storage_driver.log.clock import wall_ms
from storage_driver.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from appliance.group.account_copies import AccountCopies
    from appliance.group.copies.log_copy import LogCopy
    from appliance.group.links.directory import MemberAddress
    from appliance.group.member_parts import MemberLog
    from appliance.group.relay.relayed_clients import RelayedClients
    from appliance.replication.slaves import Slaves

WITH_BYTES = frozenset({APPEND, ACCOUNTS})


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
    accounts: AccountCopies | None = None  # the file of access keys on its way to the others
    slaves: Slaves | None = None  # what serves Apache's
    relayed: RelayedClients | None = None  # what serves gRPC clients that other members bring

    def first_members(self) -> Members:
        """Return the members that a log without any begins with."""
        boxes = tuple(name for name, member in self.members.items() if not member.witness)
        return Members(boxes, tuple(name for name, member in self.members.items() if member.witness))

    def of_member(self) -> MemberRules:
        """Return what the driver needs of it."""
        directory, rate = MemberDirectory(self.member, self.members), self.catch_up_bytes_s
        own = MemberRules(self.group, self.member, directory, self.host, rate, self.accounts)
        wait_s = self.wait_ms / 1000
        return own._replace(slaves=self.slaves, relayed=self.relayed, consensus=self.rules, wait_s=wait_s)


def boottime_s() -> float:
    """Return the seconds since the start of this machine, those that it was suspended for included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def make_driver(
    plan: GroupPlan,
    store: MemberLog,
    copy: LogCopy,
    certificates: Path,
    files: MemberFiles,
    *,
    clock_ok: bool,
    committed: int,
) -> ConsensusDriver:
    """Return the driver of a box or, over a log that is none, of a witness. Blocks.

    Raises ConfigError (certificates), VoteFileDamaged, StateDamaged, ConsensusRefused, OSError.
    """
    tls = LinkTls(certificates, clock_ok=clock_ok)
    tls.check_own(plan.group, plan.member)
    hard, table = files.open(plan.first_members(), first=store.first, end=store.end)
    if plan.members[plan.member].witness:  # nobody sends it the log that says who belongs to the group
        table = table._replace(configs=(MembersAt(-1, plan.first_members()),))
    core = Core(plan.member, plan.rules, Start(hard, table, store.first, store.end, committed), boottime_s())
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


def _make_links(plan: GroupPlan, tls: LinkTls, clocks: LinkClocks, user: LinkUser) -> MemberLinks:
    def new_decoder() -> LinkFrameDecoder:
        return LinkFrameDecoder(most_record_bytes=plan.most_record_bytes, with_bytes=WITH_BYTES)

    return MemberLinks(tls, user, new_decoder=new_decoder, clocks=clocks, pace=plan.pace)
