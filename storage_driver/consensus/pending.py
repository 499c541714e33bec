"""Effects in the making."""

from storage_driver.consensus.effects import BeginTerm, Effects, LogCut, MemberStatus, TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Members
from storage_driver.consensus.messages import Append, Message

NOTHING = Effects()


class PendingEffects:
    """What one event has caused so far. A later value replaces an earlier one, messages add up."""

    def __init__(self) -> None:
        self.hard_state: HardState | None = None
        self.table: TermTable | None = None
        self.cut: LogCut | None = None
        self.accepted: Append | None = None
        self.begin_term: BeginTerm | None = None
        self.members: Members | None = None
        self.send: list[tuple[str, Message]] = []
        self.committed: int | None = None

    def take(self, status: MemberStatus | None) -> Effects:
        """Return what there is and start again."""
        effects = Effects(
            self.hard_state,
            self.table,
            self.cut,
            self.accepted,
            self.begin_term,
            self.members,
            tuple(self.send),
            self.committed,
            status,
        )
        self.hard_state = self.table = self.cut = self.accepted = self.begin_term = self.members = self.committed = None
        self.send.clear()
        return effects
