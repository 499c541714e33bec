"""The verdict of a recovery: the worst of what was found counts."""

import pytest

from storage_driver.recovery.losses import Loss
from storage_driver.recovery.verdict import Damage, RecoveryVerdict

LOSS = Loss(1, 0, [(0, 10)], ["gone"], {"the index": 10}, 3, [("T", 0, 3)])


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({}, "clean"),
        ({"torn_bytes": 5}, "clean_tail"),
        ({"torn_bytes": 5, "moved": 1}, "repaired"),
        ({"queues_rebuilt": 1}, "repaired"),
        ({"moved": 1, "foreign_records": True}, "salvaged"),
        ({"quarantined": [Damage(0, 5, "crc", None)], "moved": 1}, "salvaged"),
        ({"lost": LOSS, "quarantined": [Damage(0, 5, "crc", None)]}, "lost"),
    ],
)
def test_the_worst_counts(found: dict[str, object], verdict: str) -> None:
    made = RecoveryVerdict()
    for name, value in found.items():
        setattr(made, name, value)
    made.judge()
    assert made.verdict == verdict


def test_the_file_names_what_was_covered_and_where_its_bytes_are() -> None:
    made = RecoveryVerdict()
    made.quarantined.append(Damage(10, 20, "crc", "log-10-20"))
    made.lost, made.reasons = LOSS, [f"reason {number}" for number in range(60)]
    told = made.to_json()
    assert told["log"]["quarantined"] == [{"from": 10, "to": 20, "reason": "crc", "aside": "log-10-20"}]
    assert (told["salvage"], told["lost"]["messages"], len(told["reasons"])) == ("log-10-20", 3, 50)
