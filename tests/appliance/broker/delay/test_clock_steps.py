"""Steps of a wall clock that a test moves, beside a clock that only goes."""

from appliance.broker.delay.clock_steps import MOST_STEPS, ClockSteps, boot_ms

HOUR = 3_600_000


class Clocks:
    """Both clocks: time passes on both, a step is the wall clock's alone."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ms, self.boot_ms = wall_ms, 5
        self.steps = ClockSteps(lambda: self.wall_ms, lambda: self.boot_ms)

    def go(self, ms: int, step_ms: int = 0) -> ClockSteps:
        self.wall_ms, self.boot_ms = self.wall_ms + ms + step_ms, self.boot_ms + ms
        self.steps.look()
        return self.steps


def test_what_was_stored_before_a_step_forward_is_due_by_so_much_later() -> None:
    clocks = Clocks(1000)
    clocks.go(HOUR)
    steps = clocks.go(HOUR, 50 * HOUR)
    old = 1000 + 2 * HOUR  # what the old clock showed at the step
    assert [steps.later_ms(stored) for stored in (0, old, old + 1, clocks.wall_ms)] == [50 * HOUR, 50 * HOUR, 0, 0]
    clocks.go(0, 3 * HOUR)
    assert steps.later_ms(old) == 53 * HOUR


def test_small_steps_and_time_that_passes_are_none() -> None:
    clocks = Clocks(1000)
    for step_ms in (0, 60_000, -60_000):
        assert clocks.go(30 * HOUR, step_ms).later_ms(0) == 0


def test_a_step_back_takes_those_before_it_back_and_is_told() -> None:
    clocks = Clocks(1000)
    clocks.steps.was_set_back = False
    assert not clocks.go(0, HOUR).was_set_back
    steps = clocks.go(0, -HOUR)
    assert (steps.was_set_back, steps.later_ms(0)) == (True, 0)


def test_few_steps_are_kept() -> None:
    clocks = Clocks(1000)
    for _ in range(3 * MOST_STEPS):
        clocks.go(0, HOUR)
    assert clocks.steps.later_ms(0) == MOST_STEPS * HOUR
    assert boot_ms() > 0
