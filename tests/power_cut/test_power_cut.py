import random

import pytest

from tests.power_cut.harness import Tally, check, cut_everywhere, open_after, record
from tests.power_cut.run import run_many


@pytest.mark.slow
def test_no_power_cut_loses_an_acknowledged_message() -> None:
    total = run_many(3_000, 1, per_workload=1_000, show=False)  # each workload is cut at every one of its steps
    assert total.failures == []
    assert total.states >= 3_000 > total.steps
    print(f"{total.states} crash states over {total.steps} steps, {total.acknowledged} acknowledged messages")


@pytest.mark.slow
def test_a_disk_that_ignores_syncs_is_caught() -> None:
    """The same seed gives the same states in every process: what is lost here is lost because syncs were ignored."""
    lying, closely, honest = Tally(), Tally(), Tally()
    cut_everywhere(1, messages=100, states=60, tally=lying, lying=True)
    cut_everywhere(1, messages=100, states=60, tally=closely, lying=True, quick=False)
    cut_everywhere(1, messages=100, states=60, tally=honest)
    assert honest.failures == []
    assert sum("acknowledged message" in text for text in lying.failures) > 30
    assert lying.failures == closely.failures


@pytest.mark.slow
def test_a_cut_while_a_queue_is_made_anew_from_the_log_leaves_none_half_made() -> None:
    sent, trace = record(4, 160)
    harmed, pick, wrong = sent.copy(), random.Random(1), []
    del harmed.names["/data/store/consumequeue/T0/0/" + "0" * 20]
    recovered = harmed.copy()
    assert open_after(recovered).recovered.verdict.queues_rebuilt == 1
    for number in range(len(recovered.steps) + 1):
        cut = harmed.copy()
        for step in recovered.steps[:number]:
            cut.apply(step)
        for _ in range(2):
            wrong += check(cut.after_power_cut(pick), trace, 1 << 59)
    assert wrong == []
