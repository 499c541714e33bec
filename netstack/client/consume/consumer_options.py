"""How a consumer behaves, with the Java client's defaults and ranges."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from netstack.client.consume.rebalance import Averagely, Strategy
from netstack.client.errors import UsageError
from netstack.client.messages import ReceivedMessage
from netstack.wire.bodies import ConsumeFromWhere

MIB = 1 << 20
DEFAULT_MAX_RECONSUME = 16
_RANGES = {
    "max_span": (1, 65535),
    "queue_messages": (1, 65535),
    "queue_mib": (1, 1024),
    "topic_messages": (-1, 6_553_500),
    "topic_mib": (-1, 102_400),
    "pull_batch": (1, 1024),
}


class StartFrom(Enum):
    """Where a group without a stored offset begins. Brokers always start a new queue at 0."""

    LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


class Processing(Protocol):
    """What `telemetry.Telemetry` does for a consumer: a span around the handler."""

    def processing(
        self, messages: Sequence[ReceivedMessage], *, group: str, client_id: str
    ) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Settings of one consumer; `start_ms` goes with StartFrom.TIMESTAMP (default: half an hour before the start).

    `max_reconsume` -1 is 16 deliveries after the first, in order: without end. `topic_*` -1 is no limit.
    """

    start_from: StartFrom = StartFrom.LAST
    start_ms: int | None = None
    strategy: Strategy = Averagely()  # noqa: RUF009 frozen
    broadcasting: bool = False
    orderly: bool = False
    auto_commit: bool = True
    pull_batch: int = 32
    pull_interval_s: float = 0.0
    queue_messages: int = 1000
    queue_mib: int = 100
    topic_messages: int = -1
    topic_mib: int = -1
    max_span: int = 2000
    hold_s: float = 15.0
    pull_timeout_s: float = 30.0
    failure_delay_s: float = 1.0
    max_reconsume: int = -1
    suspend_s: float = 1.0
    consume_timeout_s: float = 900.0
    persist_every_s: float = 5.0
    rebalance_every_s: float = 20.0
    subscription_in_pulls: bool = False
    offsets_folder: Path | None = None
    trace_topic: str | None = None
    telemetry: Processing | None = None

    def __post_init__(self) -> None:
        for name, (lowest, highest) in _RANGES.items():
            if not lowest <= getattr(self, name) <= highest:
                raise UsageError(f"{name} is {getattr(self, name)}, allowed: {lowest}..{highest}")
        if self.pull_timeout_s < self.hold_s:
            raise UsageError(f"pull_timeout_s {self.pull_timeout_s:g} is shorter than hold_s {self.hold_s:g}")

    @property
    def reconsume_limit(self) -> int:
        return DEFAULT_MAX_RECONSUME if self.max_reconsume < 0 else self.max_reconsume
