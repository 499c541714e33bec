"""Topics with an acknowledgement policy of their own: `local`, `one` or `both`, whatever the box's is.

What readers see and the uplink ships follows the box's policy, for all topics alike: there is one log. A topic decides
when its senders are answered.
"""

from collections.abc import Callable
from typing import Final, Protocol

from appliance.errors import NOT_COPIED
from storage_driver.consensus.rules import Rules
from storage_driver.log.marks import Mark, Wake, When

BOTH: Final = "both"
MOST_AHEAD: Final = 64 << 20  # bytes that are answered and wait for the other disk; each record takes memory meanwhile


class CopiedMark:
    """How far two disks have the log; looked at only where somebody waits for it."""

    def __init__(self, copied: Callable[[], int]) -> None:
        self._copied, self._mark = copied, Mark(0)

    @property
    def waiting(self) -> Mark:
        """The mark at which clients wait."""
        return self._mark

    @property
    def waits(self) -> bool:
        """Whether somebody waits."""
        return self._mark.asked > self._mark.told

    def when(self, log_offset: int, wake: Wake) -> None:
        """Call wake(None) once two disks have everything below a log offset, wake(reason) if they will not."""
        self._mark.move(self._copied())
        self._mark.when(log_offset, wake)

    def reached(self) -> int:
        """Return the log offset up to which two disks have everything."""
        return self._copied()

    def look(self) -> None:
        """Answer those whose log offset has been reached."""
        if self.waits:
            self._mark.move(self._copied())

    def fail(self, reason: str) -> None:
        """Answer all with a reason: this box leads no longer, its log offsets may be given out again."""
        self._mark.fail(reason)
        self._mark.at = 0


class CopyFacts(Protocol):
    """What the driver of a member knows of other disks."""

    @property
    def copied(self) -> CopiedMark: ...
    def copy_there(self) -> bool: ...
    def why_not_copied(self) -> str: ...


class LeaderMarks(Protocol):
    """How far the leader's log is."""

    @property
    def end(self) -> int: ...
    @property
    def synced(self) -> int: ...
    @property
    def committed(self) -> int: ...
    def when_synced(self, log_offset: int, wake: Wake, /) -> None: ...
    def when_acknowledged(self, log_offset: int, wake: Wake, /) -> None: ...


class TopicPolicies:
    """The policies of topics on a member."""

    def __init__(self, rules: Rules, log: LeaderMarks, copies: CopyFacts) -> None:
        self._copies, self._log = copies, log
        self._box_waits, self._two_disks = rules.counts_copies, rules.counts_copies and rules.copies > 1
        self._box, self._own_disk, self._both = log.when_acknowledged, log.when_synced, copies.copied.when

    def when(self, policy: str) -> When:
        """Return what tells of a log offset that senders may be answered up to there."""
        if policy == BOTH:
            return self._box if self._two_disks else self._both
        return self._own_disk if self._box_waits else self._box

    def reached(self, policy: str) -> int:
        """Return the log offset up to which senders have been answered."""
        if policy == BOTH:
            return self._log.committed if self._two_disks else self._copies.copied.reached()
        return self._log.synced if self._box_waits else self._log.committed

    def why_not(self, policy: str) -> str:
        """Return why nothing more can be taken for such a topic now, "" when it can."""
        if policy == BOTH:
            if self._two_disks:
                return ""
            if not self._copies.copy_there():
                return f"{NOT_COPIED}: {self._copies.why_not_copied()}"
            behind = self._log.end - self._copies.copied.reached()
            return f"{NOT_COPIED}: the other box is {behind} bytes behind" if behind > MOST_AHEAD else ""
        ahead = self._log.end - self._log.committed
        if self._box_waits and ahead > MOST_AHEAD:
            return f"{NOT_COPIED}, {ahead} bytes wait for it: {self._copies.why_not_copied()}"
        return ""
