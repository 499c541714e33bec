"""Counts of a consumer for tools: rates over the last minute. Source: RocketMQ 4.9.8 ConsumerStatsManager."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from netstack.wire.bodies import ConsumeStatus

MINUTE_S = 60.0
STEP_S = 10.0


@dataclass(slots=True)
class _Step:
    began: float
    pulled: int = 0
    pulls: int = 0
    pull_ms: float = 0.0
    done: int = 0
    failed: int = 0
    consume_ms: float = 0.0


@dataclass(slots=True)
class _Topic:
    steps: deque[_Step] = field(default_factory=lambda: deque(maxlen=int(MINUTE_S / STEP_S)))
    failed: int = 0


class ConsumeCounts:
    """`clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = {}

    def _step(self, topic: str) -> _Step:
        counted = self._topics.setdefault(topic, _Topic())
        now = self._clock()
        if not counted.steps or now - counted.steps[-1].began >= STEP_S:
            counted.steps.append(_Step(now))
        return counted.steps[-1]

    def pulled(self, topic: str, number: int, took_ms: float = 0.0) -> None:
        step = self._step(topic)
        step.pulled += number
        step.pulls += 1
        step.pull_ms += took_ms

    def consumed(self, topic: str, number: int, took_ms: float, *, failed: bool) -> None:
        step = self._step(topic)
        step.consume_ms += took_ms
        if failed:
            step.failed += number
            self._topics[topic].failed += number
        else:
            step.done += number

    def status(self) -> dict[str, ConsumeStatus]:
        """Return rates per second and mean times in milliseconds per topic."""
        return {topic: self._status(counted) for topic, counted in self._topics.items()}

    def _status(self, counted: _Topic) -> ConsumeStatus:
        now = self._clock()
        steps = [step for step in counted.steps if now - step.began < MINUTE_S + STEP_S]
        span = max(1.0, now - steps[0].began) if steps else 1.0
        pulls, done = sum(step.pulls for step in steps), sum(step.done for step in steps)
        failed = sum(step.failed for step in steps)
        return ConsumeStatus(
            sum(step.pull_ms for step in steps) / max(1, pulls),
            sum(step.pulled for step in steps) / span,
            sum(step.consume_ms for step in steps) / max(1, done + failed),
            done / span,
            failed / span,
            counted.failed,
        )
