import pytest

from watchdog.reset_reason import BootFacts, reset_reason

OURS = {"boot": "one", "reason": "update", "who": "admin"}
STARVED = {"boot": "one", "uptime_s": 99, "state": "failing"}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (BootFacts(), "power"),
        (BootFacts("one", planned=OURS), "planned"),
        (BootFacts("one", planned=OURS | {"who": "escalate"}), "escalated"),
        (BootFacts("two", planned=OURS), "power"),  # the mark is of an older boot
        (BootFacts("one", planned=OURS, bootstatus=0x20, panic_files=1), "planned"),
        (BootFacts("one", bootstatus=0x20, panic_files=1), "watchdog"),
        (BootFacts("one", bootstatus=0x8020), "watchdog"),
        (BootFacts("one", bootstatus=0x40), "power"),
        (BootFacts("one", panic_files=2, heartbeat=STARVED), "panic"),
        (BootFacts("one", heartbeat=STARVED), "hang"),
        (BootFacts("one", heartbeat=STARVED | {"state": "ok"}), "power"),
    ],
)
def test_the_first_reason_that_fits_is_the_reset_reason(facts: BootFacts, expected: str) -> None:
    assert reset_reason(facts) == expected
