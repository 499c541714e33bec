"""Which broker a producer avoids after slow or failed sends.

Source: RocketMQ 4.9.8 MQFaultStrategy, LatencyFaultToleranceImpl.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from netstack.wire.json_body import MessageQueue

LATENCY_MS = (50, 100, 550, 1000, 2000, 3000, 15000)
AVOIDED_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
ISOLATED_MS = 30_000  # the latency that stands for a failure; it is avoided for ten minutes


@dataclass(frozen=True, slots=True)
class Fault:
    latency_ms: float
    usable_from_ms: float


class FaultTable:
    """What the last sends say of each broker."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}
        self._turn = 0

    def note(self, broker: str, latency_ms: float, now_ms: float, *, failed: bool = False) -> None:
        """Remember how an attempt went."""
        counted = ISOLATED_MS if failed else latency_ms
        avoided = 0
        for limit, duration in zip(LATENCY_MS, AVOIDED_MS, strict=True):
            if counted >= limit:
                avoided = duration
        self._faults[broker] = Fault(counted, now_ms + avoided)

    def usable(self, broker: str, now_ms: float) -> bool:
        fault = self._faults.get(broker)
        return fault is None or now_ms >= fault.usable_from_ms

    def pick(self, queues: Sequence[MessageQueue], position: int, now_ms: float) -> MessageQueue:
        """Return the next queue on a usable broker; with none, one on a broker of the better half."""
        for step in range(len(queues)):
            queue = queues[(position + step) % len(queues)]
            if self.usable(queue.broker_name, now_ms):
                return queue
        broker = self._least_bad(now_ms)
        count = sum(queue.broker_name == broker for queue in queues)
        queue = queues[position % len(queues)]
        if broker is not None and count:
            return queue._replace(broker_name=broker, queue_id=position % count)
        if broker is not None:
            self._faults.pop(broker, None)
        return queue

    def _least_bad(self, now_ms: float) -> str | None:
        ranked = sorted(
            self._faults, key=lambda broker: (not self.usable(broker, now_ms), *_badness(self._faults[broker]))
        )
        if not ranked:
            return None
        self._turn += 1
        return ranked[self._turn % max(1, len(ranked) // 2)]


def _badness(fault: Fault) -> tuple[float, float]:
    return fault.latency_ms, fault.usable_from_ms


def next_queue(queues: Sequence[MessageQueue], position: int, last_broker: str | None) -> MessageQueue:
    """Return the queue at this position, or the next one on another broker than the last attempt's."""
    if last_broker is not None:
        for step in range(len(queues)):
            queue = queues[(position + step) % len(queues)]
            if queue.broker_name != last_broker:
                return queue
    return queues[position % len(queues)]
