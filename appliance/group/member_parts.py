"""What one member of a group is made with: who it is, which clocks it has, what its tasks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from appliance.group.copies.log_copy import FollowerLog, LogCopy
from appliance.group.copies.missing import MissingMessages
from appliance.group.copies.segment_fetching import WholeSegments
from appliance.group.copies.shipping import Shipping
from appliance.group.event_queue import EventQueue
from appliance.group.leadership import Leadership
from appliance.group.links.directory import MemberDirectory
from appliance.group.wishes import Wishes
from storage_driver.consensus.core import Core
from storage_driver.consensus.rules import Rules
from storage_driver.named_tuple import NamedTuple

if TYPE_CHECKING:
    from appliance.group.account_copies import AccountCopies
    from appliance.group.relay.relayed_clients import RelayedClients
    from appliance.replication.slaves import Slaves
    from storage_driver.log.commit_log import Writing
    from storage_driver.log.lineage import Lineage
    from storage_driver.record import Message, MessageQueue
    from storage_driver.statistics import AppendResult


class MemberLog(FollowerLog, Protocol):
    """The part of a store that a member of a group uses."""

    lineage: Lineage

    @property
    def copies(self) -> WholeSegments | None: ...
    @property
    def truncations(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def dispatched(self) -> int: ...
    def max_offset(self, queue: MessageQueue, /) -> int: ...
    def put(self, message: Message, /, *, own: bool = False, crc: int | None = None) -> AppendResult: ...
    def commit(self, log_offset: int, /) -> None: ...
    def share(self, synced_to: Callable[[int], None], writing: Writing | None = None) -> None: ...
    def pause_index(self, rests: bool, /) -> None: ...
    def only_copies(self, reason: str | None, /) -> None: ...


class MemberRules(NamedTuple):
    """Which member of which group this is, and where the others are."""

    group: str
    member: str
    directory: MemberDirectory
    host: bytes  # as in records
    catch_up_bytes_s: int = 0  # that a member is sent from the disk; 0: as fast as it takes them
    accounts: AccountCopies | None = None
    slaves: Slaves | None = None  # Apache's, which copy from this member
    relayed: RelayedClients | None = None  # gRPC clients that come by another member
    consensus: Rules = Rules()  # `scale` is of all times of the group
    wait_s: float = 3.0  # that a send waits for other disks


class DriverClocks(NamedTuple):
    """Seconds that suspend counts too, the wall clock, what spreads elections."""

    now_s: Callable[[], float]
    wall_ms: Callable[[], int]
    random: Callable[[], float]


class DriverParts(NamedTuple):
    """What links, orders, view and driver of one member share; each is changed by the one whose name it has."""

    rules: MemberRules
    core: Core
    store: MemberLog
    leadership: Leadership
    clocks: DriverClocks
    events: EventQueue
    wishes: Wishes
    shipping: Shipping
    copy: LogCopy
    missing: MissingMessages
