"""What a group is configured to do, and its times."""

from typing import Literal

from storage_driver.named_tuple import NamedTuple

Elections = Literal["automatic", "manual"]
Acknowledge = Literal["local", "one", "both", "majority"]

HEARTBEAT_S = 0.5
ELECTION_S = (2.0, 4.0)  # drawn for each round
OTHERS_FIRST_S = 2 * ELECTION_S[1]  # two rounds of whoever else can be elected
QUORUM_S = 2.0  # a leader that no majority answered for so long steps down
LEASE_S = 1.6  # from the send time of a heartbeat that a majority answered: 2.0 s less 20 % for clocks that differ
REFUSAL_S = 2.0  # a voter that heard a leader refuses to vote for so long
TRANSFER_S = 2.0
STALL_S = 2.0  # a leader whose disk has not synced for so long gives up
LEVEL_BYTES, LEVEL_S = 1 << 20, 10.0  # a learner becomes a voter when it was so close for so long
TRANSFER_BYTES = 8 << 20  # nobody takes over that is farther behind
PREFERRED_LEVEL_S, PREFERRED_PAUSE_S = 30.0, 300.0


class Rules(NamedTuple):
    """What is configured; equal on all members."""

    elections: Elections = "automatic"
    acknowledge: Acknowledge = "majority"
    copies: int = 2  # boxes that have a message on disk before it is committed; 1: a box and the witness go on alone
    preferred: str = ""  # the member that leads when nothing speaks against it
    scale: float = 1.0  # of all times

    @property
    def manual(self) -> bool:
        """Whether nobody campaigns without being asked to."""
        return self.elections == "manual"

    @property
    def counts_copies(self) -> bool:
        """Whether other disks are waited for."""
        return self.acknowledge in ("both", "majority")
