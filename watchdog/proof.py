"""Evidence and limits in, a verdict out: may systemd be told that this process works?

Only what a restart can cure starves the watchdog. Space, quota, uplink, clock and clients are nobody's business here.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

STARVE_S = 30.0  # how long memory or descriptors may stay above `choked_ratio`


class Evidence(Protocol):
    """Something worked: when (monotonic seconds) and how long it took. The part that did it makes the value."""

    @property
    def at_s(self) -> float: ...
    @property
    def took_s(self) -> float: ...


class Success(NamedTuple):
    """The newest success of one kind."""

    at_s: float
    took_s: float = 0.0


class ProofLimits(NamedTuple):
    """When evidence is too old, and how full is too full."""

    proof_limit_s: float = 15.0
    loop_limit_s: float = 5.0
    pressed_ratio: float = 0.90
    choked_ratio: float = 0.97


class ProofFacts(NamedTuple):
    """What is known at one look: `evidence` holds `durable` and `accepted`, `choked_since_s` when choking began."""

    evidence: Mapping[str, Evidence]
    late_s: float = 0.0  # by how much the loop overslept
    memory_ratio: float = 0.0
    descriptor_ratio: float = 0.0
    choked_since_s: float | None = None


class Reason(NamedTuple):
    """Why the state is not `ok`: a code of `rocketbox doctor`, a sentence, the next step."""

    code: str
    text: str
    next: str

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "text": self.text, "next": self.next}


class ProofVerdict(NamedTuple):
    """`feed`: tell systemd. `refuse`: take no new connections. `state`: ok, degraded or failing."""

    feed: bool
    state: str
    reasons: tuple[Reason, ...] = ()
    refuse: bool = False
    ages_s: Mapping[str, float] = {}


SOURCES = {
    "durable": ("D501", "nothing reached the disk for {age:.0f} s", "look for I/O errors: `journalctl -k`, D101, D104"),
    "accepted": (
        "D502",
        "the box's own ports answered no request for {age:.0f} s",
        "wait: the watchdog restarts the box",
    ),
}


def judge(facts: ProofFacts, now_s: float, limits: ProofLimits) -> ProofVerdict:
    """Weigh one look: stale evidence starves, scarce memory or descriptors degrade and starve only when they last."""
    ages = {name: max(0.0, now_s - seen.at_s) for name, seen in facts.evidence.items()}
    starving = [
        Reason(code, text.format(age=ages[name]), step)
        for name, (code, text, step) in SOURCES.items()
        if name in ages and ages[name] > limits.proof_limit_s
    ]
    if facts.late_s > limits.loop_limit_s:
        starving.append(
            Reason("D503", f"the event loop was {facts.late_s:.1f} s late", "wait: the watchdog restarts the box")
        )
    pressed = _pressed(facts, limits)
    if facts.choked_since_s is not None and now_s - facts.choked_since_s > STARVE_S:
        starving += pressed
    reasons = tuple(starving) + tuple(reason for reason in pressed if reason not in starving)
    state = "failing" if starving else "degraded" if pressed else "ok"
    return ProofVerdict(not starving, state, reasons, bool(pressed), ages)


def is_choked(facts: ProofFacts, limits: ProofLimits) -> bool:
    """Tell whether memory or descriptors are so scarce that it must not last."""
    return max(facts.memory_ratio, facts.descriptor_ratio) > limits.choked_ratio


def _pressed(facts: ProofFacts, limits: ProofLimits) -> list[Reason]:
    rows = (
        ("D504", "memory", facts.memory_ratio, "fewer connections or a larger MemoryMax="),
        ("D505", "open files", facts.descriptor_ratio, "fewer connections or a larger LimitNOFILE="),
    )
    return [
        Reason(code, f"{what} at {ratio:.0%} of the limit, new connections are refused", step)
        for code, what, ratio, step in rows
        if ratio >= limits.pressed_ratio
    ]
