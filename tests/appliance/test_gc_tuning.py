import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from appliance.gc_tuning import TURN_S, YOUNG, settle

CODE_GIVEN_BACK = """
import re, ssl
from appliance.gc_tuning import give_back_code
def code_kb():
    return int(re.search(r"RssFile:\\s+(\\d+)", open("/proc/self/status").read())[1])
ssl.create_default_context()
before = code_kb()
give_back_code()
after = code_kb()
assert after < before - 1024, (before, after)
assert ssl.create_default_context().verify_mode == ssl.CERT_REQUIRED
"""


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


def test_code_that_only_a_start_needs_leaves_memory_and_runs_again_when_it_is_needed() -> None:
    subprocess.run([sys.executable, "-c", CODE_GIVEN_BACK], check=True)
