import pytest

from watchdog.proof import ProofFacts, ProofLimits, Success, is_choked, judge

LIMITS = ProofLimits()
NOW = 1000.0


def facts(durable_age: float = 1, accepted_age: float = 1, **more: float) -> ProofFacts:
    return ProofFacts({"durable": Success(NOW - durable_age), "accepted": Success(NOW - accepted_age)}, **more)


@pytest.mark.parametrize(
    ("seen", "feed", "state", "codes"),
    [
        (facts(), True, "ok", []),
        (facts(durable_age=15), True, "ok", []),
        (facts(durable_age=15.1), False, "failing", ["D501"]),
        (facts(accepted_age=15), True, "ok", []),
        (facts(accepted_age=15.1), False, "failing", ["D502"]),
        (facts(durable_age=40, accepted_age=40), False, "failing", ["D501", "D502"]),
        (facts(late_s=5), True, "ok", []),
        (facts(late_s=5.1), False, "failing", ["D503"]),
        (facts(memory_ratio=0.89), True, "ok", []),
        (facts(memory_ratio=0.90), True, "degraded", ["D504"]),
        (facts(descriptor_ratio=0.95), True, "degraded", ["D505"]),
        (facts(memory_ratio=0.98, choked_since_s=NOW - 30), True, "degraded", ["D504"]),
        (facts(memory_ratio=0.98, choked_since_s=NOW - 30.1), False, "failing", ["D504"]),
        (facts(descriptor_ratio=0.99, choked_since_s=NOW - 31), False, "failing", ["D505"]),
        (facts(durable_age=16, memory_ratio=0.92), False, "failing", ["D501", "D504"]),
    ],
)
def test_each_limit_starves_or_degrades_exactly_past_its_edge(
    seen: ProofFacts, feed: bool, state: str, codes: list[str]
) -> None:
    verdict = judge(seen, NOW, LIMITS)
    assert (verdict.feed, verdict.state, [reason.code for reason in verdict.reasons]) == (feed, state, codes)


def test_scarce_memory_refuses_new_connections_and_stale_proof_does_not() -> None:
    assert judge(facts(memory_ratio=0.9), NOW, LIMITS).refuse
    assert not judge(facts(durable_age=99), NOW, LIMITS).refuse


def test_a_longer_proof_limit_lets_a_slow_disk_pass() -> None:
    assert judge(facts(durable_age=59), NOW, ProofLimits(proof_limit_s=60)).feed


def test_every_reason_names_figures_and_a_next_step() -> None:
    (reason,) = judge(facts(durable_age=23), NOW, LIMITS).reasons
    assert "23 s" in reason.text
    assert reason.next
    assert reason.to_json() == {"code": "D501", "text": reason.text, "next": reason.next}


def test_choked_begins_above_97_percent() -> None:
    assert not is_choked(facts(memory_ratio=0.97), LIMITS)
    assert is_choked(facts(descriptor_ratio=0.971), LIMITS)


def test_the_ages_come_back_for_the_health_file() -> None:
    assert judge(facts(1.2, 3.9), NOW, LIMITS).ages_s == pytest.approx({"durable": 1.2, "accepted": 3.9})
