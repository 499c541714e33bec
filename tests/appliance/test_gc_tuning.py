import gc
import sys
from collections.abc import Iterator

import pytest

from appliance.gc_tuning import TURN_S, YOUNG, settle


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds, turn_s = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(turn_s)


def test_what_is_there_is_not_looked_at_again_and_later_cycles_still_go() -> None:
    class Knot:
        gone = 0

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            Knot.gone += 1

    settle()
    assert gc.get_freeze_count() > 10_000
    assert sys.getswitchinterval() == pytest.approx(TURN_S)
    Knot()
    kept: list[list[int]] = [[] for _ in range(2 * YOUNG)]
    assert (len(kept), Knot.gone) == (2 * YOUNG, 1)
