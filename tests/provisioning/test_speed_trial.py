"""A new speed: proven by any valid frame, taken back after two seconds without one."""

from provisioning.speed_trial import SPEED_PROOF_S, SpeedTrial


def test_a_speed_that_nothing_proves_fails_once() -> None:
    trial = SpeedTrial(115_200)
    assert not trial.failed(1e9)
    trial.begin(460_800, 100.0)
    assert (trial.runs, trial.old_baud) == (True, 460_800)
    assert [trial.failed(100.0 + SPEED_PROOF_S / 2), trial.failed(100.0 + SPEED_PROOF_S)] == [False, True]
    assert (trial.runs, trial.failed(1e9)) == (False, False)


def test_a_valid_frame_proves_it() -> None:
    trial = SpeedTrial(115_200)
    trial.begin(115_200, 100.0)
    trial.heard()
    assert (trial.runs, trial.failed(1e9)) == (False, False)


def test_the_first_request_after_a_change_asks_whether_the_box_hears() -> None:
    trial = SpeedTrial(115_200)
    assert not trial.asks()
    trial.begin(115_200, 100.0)
    assert [trial.asks(), trial.asks()] == [True, False]
