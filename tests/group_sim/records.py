"""What the simulator's logs hold: records that name the one before, so that equal last records mean equal logs."""

from typing import NamedTuple

from storage_driver.consensus.messages import Message


class Fault(AssertionError):
    """An invariant does not hold."""


class SimRecord(NamedTuple):
    """One record. Two logs that end with the same record are the same."""

    number: int
    term: int
    start: int
    end: int
    before: int  # number of the record before, 0: none


class Envelope(NamedTuple):
    """A message under way, with the bytes behind an Append."""

    sender: str
    to: str
    message: Message
    records: tuple[SimRecord, ...] = ()
