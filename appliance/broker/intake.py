"""The only way into the store for what may be delayed, timed or half: diverts change the draft, then it is stored.

What the store raises becomes the response code a RocketMQ client expects.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from appliance.errors import NOT_COPIED
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.errors import Busy, Full, LogFailed, MessageIllegal, PropertiesTooLong
from storage_driver.interfaces import Appending
from storage_driver.record import Message, encode_properties
from storage_driver.statistics import AppendResult

WAIT = "WAIT"
DELAY, HALF = "DELAY", "TRAN_MSG"
OTHERS_LEAD = "the leader of term "
MOST_TIMES = (1 << 31) - 1  # a sender may say that a message was retried as often: one more has no room in a record
TIMERS = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")


@dataclass(slots=True)
class MessageDraft:
    """A message on its way into the store, still to be changed."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_offset: int = 0
    owner: str = ""  # the key that signed the send

    def to_message(self) -> Message:
        """Return what is stored. Raises MessageIllegal."""
        return Message(
            self.topic,
            self.queue_id,
            self.body,
            encode_properties(self.properties),
            self.flag,
            self.sys_flag,
            self.born_ms,
            self.born_host,
            min(self.reconsume_times, MOST_TIMES),
            self.prepared_offset,
        )


Divert = Callable[[MessageDraft], None]
"""Gives a draft another destination when its properties ask for it. Raises Refused."""


class Space:
    """Whether there is room for senders, as far as others than the store say; the uplink decides too when it runs."""

    def __init__(self) -> None:
        self.refusal: Callable[[], str | None] = lambda: None
        self.rejected: Callable[[str, str], None] = lambda topic, reason: None  # a send refused for space or size

    def check(self, topic: str) -> None:
        """Raise Refused while senders must wait."""
        reason = self.refusal()
        if reason is not None:
            self.rejected(topic, "reject_new")
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}")

    def note(self, topic: str, exc: BaseException | None) -> None:
        """Count a send that the store refused for space or size."""
        if isinstance(exc, Full):
            self.rejected(topic, "disk_full")
        elif isinstance(exc, MessageIllegal):
            self.rejected(topic, "too_large")


class Intake:
    """Puts drafts; the diverts are asked in order."""

    def __init__(self, store: Appending, diverts: Sequence[Divert] = ()) -> None:
        self._store, self._diverts = store, tuple(diverts)

    def put(self, draft: MessageDraft, *, again: bool = False) -> AppendResult:
        """Store a draft where its properties say. Raises Refused.

        What was stored before and comes `again` may be larger than what is sent: the limit may be lower since.
        """
        draft.properties.pop(WAIT, None)
        for divert in self._diverts:
            divert(draft)
        with refusals():
            return self._store.put(draft.to_message(), own=again and self._store.full is None)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the store raises into refusals. Source: RocketMQ 4.9.8 SendMessageProcessor.handlePutMessageResult."""
    try:
        yield
    except (Full, LogFailed, MessageIllegal, Busy) as exc:
        raise refusal(exc) from exc


def refusal(exc: Full | LogFailed | MessageIllegal | Busy) -> Refused:
    """Return the refusal for a message that the store did not accept."""
    if isinstance(exc, Full):
        return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {exc}")
    if isinstance(exc, LogFailed):
        return not_durable(exc.reason)
    if isinstance(exc, PropertiesTooLong):
        return Refused(
            ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {exc}. msg properties length limit 32KB."
        )
    if isinstance(exc, MessageIllegal):
        return Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {exc}")
    return busy(exc.waited_ms)


def not_durable(reason: str) -> Refused:
    """Return the refusal for a message that did not become durable; never 10, 11, 12: Java takes them for results."""
    why = reason if reason.startswith((NOT_COPIED, OTHERS_LEAD)) else f"the disk failed: {reason}"
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")


def busy(waited_ms: int) -> Refused:
    """Return the refusal while the disk is too slow."""
    return Refused(
        ResponseCode.SYSTEM_BUSY,
        "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while: "
        f"the oldest message not yet on disk waits {waited_ms} ms, try again later",
    )
