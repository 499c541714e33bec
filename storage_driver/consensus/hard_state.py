"""What a member must never forget: its term, whom it voted for in it, and a witness's row. Sans I/O."""

from storage_driver.named_tuple import NamedTuple


class HardState(NamedTuple):
    """A member's promises. Every message of a term leaves after the term is synced."""

    term: int = 0
    voted_for: str = ""  # in this term; empty: nobody
    row_term: int = 0  # of a witness: last term and end of the log that it vouches for
    row_end: int = 0
    filling: bool = False  # this disk is new: until it has all that is committed it may lack what it once acknowledged
