"""Every attack at once for some seconds beside a good client: the box lives, stays small and goes on serving."""

import pytest

from tests.soak import strangers
from tests.soak.attacks import ATTACKS
from tests.soak.strangers import Served, percentile


@pytest.mark.slow
def test_some_seconds_of_every_attack_leave_a_box_alive_small_and_serving(capsys: pytest.CaptureFixture[str]) -> None:
    assert strangers.run(8.0, 1, sorted(ATTACKS), 7) == []
    assert "sends answered under attack" in capsys.readouterr().out


def test_a_wait_is_told_as_a_multiple_of_the_quiet_p99() -> None:
    served = Served([1.0] * 99 + [2.0], [1.0, 50.0], [])
    assert served.ratio() == 25
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
