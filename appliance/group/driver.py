"""What the rest of a box may ask of the driver of its group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from appliance.group.leadership import LEADER, Leadership
from storage_driver.named_tuple import NamedTuple

if TYPE_CHECKING:
    from appliance.group.links.link_tls import MemberCertificates
    from appliance.group.relay.relay import GrpcRelay
    from appliance.replication.slaves import SlavesSeen
    from storage_driver.log.lineage import AloneRange


class MemberProgress(NamedTuple):
    """One member as this one knows it: all members at the leader, at a follower itself and the leader."""

    member: str
    address: str  # of its link, host:port
    witness: bool = False
    learner: bool = False
    connected: bool = False
    synced: int = 0  # its own disk has everything below this log offset; of a witness: its row's end
    behind_bytes: int | None = 0  # None: the leader has not heard in its term how far it is
    behind_s: float | None = 0.0  # age of the oldest byte that it has not
    refuses: str = ""  # why it takes nothing of the log, as it has told its leader
    clock_drift_s: float | None = None  # its wall clock minus this one's; None: never heard
    lost: str = ""  # why it is not connected, as far as this member knows

    def to_json(self) -> dict[str, object]:
        """Return what health object and admin.sock tell of it."""
        behind_s = self.behind_s
        return {**self._asdict(), "behind_s": None if behind_s is None else round(behind_s, 1)}


class CopyCount(NamedTuple):
    """On how many disks a message is to be before it is acknowledged; how many boxes take the log at this moment.

    `there` counts the leader itself, and not who has been late for nearly as long as a send waits. None: only the
    leader knows.
    """

    wanted: int
    there: int | None = None

    @property
    def missing(self) -> bool:
        """Whether it is known that messages cannot be acknowledged now."""
        return self.there is not None and self.there < self.wanted

    def to_json(self) -> dict[str, object]:
        """Return what health object and admin.sock tell of it."""
        return {"copies": self.wanted, "copies_there": self.there}


class Divergence(NamedTuple):
    """What was taken back from this log because the leader of a higher term has other bytes there."""

    start: int  # log offsets
    end: int
    at_ms: int
    quarantine: str  # the files that keep the bytes
    messages: int = 0  # whole ones of clients among them


class GroupOrders(Protocol):
    """What people want of a member. Each order returns when it is done; raises GroupRefused."""

    async def promote(self, *, accept_loss: bool = False) -> None:
        """Become the leader: by the other's hand-over if it is there, alone only with `accept_loss`."""

    async def transfer(self, to: str) -> None:
        """Hand the leadership to a member; it has everything first."""

    async def demote(self) -> None:
        """Stop leading, whoever takes over."""

    async def solo(self) -> None:
        """As leader, acknowledge alone from here on, until the other copy is level again."""

    async def join(self, member: str) -> str:
        """As leader, let a member in, one step: learner, voter; return what that waits for, "" when it is done."""

    async def remove(self, member: str) -> None:
        """As leader, take another member out of the group."""

    async def hand_over(self) -> str:
        """Let another box lead if this one does; return who leads, "" if it did not."""

    async def leave(self) -> None:
        """Ask the leader to take this member out; who leads hands over first."""

    async def resync(self, *, discard: bool = False) -> None:
        """As follower, end this process; its next start gives the copy up and takes the leader's anew."""


class GroupView(Protocol):
    """What a member sees of its group."""

    def members(self) -> tuple[MemberProgress, ...]: ...
    def copies(self) -> CopyCount: ...
    def divergence(self) -> Divergence | None: ...
    def certificates(self) -> MemberCertificates: ...
    def alone(self) -> Sequence[AloneRange]:
        """Return which ranges this disk has acknowledged alone, the newest last."""

    def refused(self) -> Mapping[str, int]:
        """Return how many connections to this member's port were refused or have ended, by reason."""

    def leads(self, term: int) -> bool:
        """Return whether this member leads in a term at this moment, and nobody else can have been elected since."""

    def slaves(self) -> SlavesSeen | None:
        """Return Apache's slaves that copy from this member, None where it serves none."""


class GroupDriver(Protocol):
    """Runs the consensus core over store and links."""

    member: str
    leadership: Leadership

    def tell_committed(self) -> None:
        """As leader, tell the others at once what is committed."""

    @property
    def orders(self) -> GroupOrders: ...
    @property
    def view(self) -> GroupView: ...
    @property
    def relay(self) -> GrpcRelay | None:
        """Return what carries gRPC clients between the members, None where their port is off."""


class GroupRefused(Exception):
    """An order was not carried out; nothing changed. The text says why and what to do."""

    def __init__(self, reason: str, *, lost_messages: int | None = None) -> None:
        super().__init__(reason)
        self.lost_messages = lost_messages  # acknowledged, as far as known, that the order would lose


def must_lead(leadership: Leadership) -> None:
    """Raise GroupRefused, which says where an order for the leader is to be given, unless this member leads."""
    state = leadership.current
    if state.role == LEADER:
        return
    if state.leader:
        raise GroupRefused(f"this box does not lead: run it on {state.leader} ({state.address})")
    raise GroupRefused("nobody leads this group now: see `rocketbox group status`, and run it on the leader")
