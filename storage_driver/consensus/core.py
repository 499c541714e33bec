"""The consensus core as its driver sees it: events in, Effects out. No clock, no randomness, no bytes."""

from typing import Protocol

from storage_driver.consensus.effects import Effects, FollowerProgress, MemberStatus
from storage_driver.consensus.members import Members
from storage_driver.consensus.messages import Append, Message
from storage_driver.consensus.rules import Acknowledge


class Consensus(Protocol):
    """One member of a group. Every event carries the time of a monotonic clock that counts suspend (CLOCK_BOOTTIME).

    Not reentrant. Each call returns what is to be done; the driver does it before it makes the next call that could
    send a message, with two exceptions that may come while earlier Effects are still carried out: `synced` and reading.
    """

    @property
    def status(self) -> MemberStatus:
        """What this member is now."""

    def next_tick_s(self) -> float:
        """Return when `tick` has something to do if nothing else happens; calling it earlier does no harm."""

    def tick(self, now_s: float, random: float) -> Effects:
        """Time has passed. `random` in [0, 1) spreads the elections of members."""

    def step(self, now_s: float, sender: str, message: Message) -> Effects:
        """A message of an authenticated member has come."""

    def connected(self, now_s: float, member: str) -> Effects:
        """A new link to a member is open: whatever was sent on the old one may be lost."""

    def appended(self, now_s: float, end: int, members: Members | None = None) -> Effects:
        """The own log now ends here. `members`: the record that ends here names them (leader only, after `members`)."""

    def synced(self, now_s: float, log_offset: int) -> Effects:
        """Everything below is on this disk."""

    def retained(self, first: int) -> None:
        """The log now begins here."""

    def disk_failed(self, now_s: float, reason: str) -> Effects:
        """This disk takes nothing any more: the member hands over, and reports nothing."""

    def cut_done(self, now_s: float, log_offset: int) -> Effects:
        """The cut that was asked for is finished."""

    def to_ship(self, member: str) -> tuple[int, int]:
        """Return the range that a follower may be sent now: of one term, equal ends when there is nothing."""

    def ship(self, member: str, length: int, crc: int) -> Append:
        """Return the message for the next bytes of `to_ship`; they count as sent. Raises ValueError beyond it."""

    def progress(self) -> tuple[FollowerProgress, ...]:
        """How far the others are; empty unless this member leads."""

    def lease_held(self, now_s: float) -> bool:
        """Whether this leader can be sure that no other one has been elected: what is not a log offset may be read."""

    def campaign(self, now_s: float, *, forced: bool = False) -> Effects:
        """Begin an election by hand.

        Forced: lead alone without any vote, in a term that no other member can take; what only others had
        acknowledged is lost. Raises ConsensusRefused.
        """

    def transfer(self, now_s: float, to: str) -> Effects:
        """Hand the leadership over: appends are refused until it is done, or given up. Raises ConsensusRefused."""

    def propose_members(self, now_s: float, members: Members) -> Effects:
        """Change the members, one voter at a time. Raises ConsensusRefused."""

    def set_acknowledge(self, now_s: float, acknowledge: Acknowledge) -> Effects:
        """Change what committed waits for. Never moves it down."""
