"""Each fact is a condition with its numbers and a next step; what is well is none."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from appliance.health.condition_rules import (
    GapSeen,
    SpaceSeen,
    StoreSeen,
    clock_conditions,
    gap_conditions,
    replication_conditions,
    space_conditions,
    store_conditions,
    uplink_conditions,
)
from appliance.health.conditions import Condition

MIB, GIB = 1 << 20, 1 << 30
NOON, DAY_MS = 1_800_000_000_000, 86_400_000


@dataclass(frozen=True)
class Link:
    oldest_unshipped_s: float = 0.0
    alarms: dict[str, str] = field(default_factory=dict)
    address: str = "centre:7700"
    connected: bool = True
    paused: bool = False
    unshipped_bytes: int = 412 * MIB
    quota_left_s: float = -1.0
    last_error: str = "refused"
    certificate_left_s: float | None = None


@pytest.mark.parametrize(
    ("found", "key", "text"),
    [
        (
            store_conditions(StoreSeen(read_only="EROFS", read_only_step="replace it", failure="x")),
            "read_only",
            "sends are refused: EROFS",
        ),
        (store_conditions(StoreSeen(failure="EIO")), "log_failed", "the log's disk failed: EIO"),
        (store_conditions(StoreSeen(losses=[(2, "lost 3 messages")])), "data_lost:2", "lost 3 messages"),
        (store_conditions(StoreSeen(verdict="salvaged")), "data_damaged", "salvaged a damaged log"),
        (
            store_conditions(StoreSeen(damaged_ranges=2, damage="2 messages cannot be read", scrubbed_bytes=3 * GIB)),
            "data_damaged:scrub",
            "2 damaged ranges in the log; the scrub has read 3.0 GiB since the start; 2 messages cannot be read",
        ),
        (
            store_conditions(StoreSeen(unreadable=["config/a.json: x", "b", "c", "d"])),
            "data_damaged:unreadable",
            "bad sectors: config/a.json: x; b; c and 1 more",
        ),
        (store_conditions(StoreSeen(unsaved=["a: full", "b: full"])), "tables_unsaved", "a: full, b: full"),
        (
            store_conditions(StoreSeen(guessed=[Path("/d/config/topics.json")])),
            "table_damaged:config/topics.json",
            "config/topics.json and its .bak were damaged at a start: topics and their queue counts are guessed",
        ),
        (uplink_conditions(Link(7800)), "uplink_late", "no receipt for 2.2 h, 412 MiB waiting, last error: refused"),
        (uplink_conditions(Link(7800, paused=True)), "uplink_late", "412 MiB waiting, the uplink is paused"),
        (uplink_conditions(Link(alarms={"identity": "x"})), "uplink_alarm:identity", "reports identity: x"),
        (uplink_conditions(Link(certificate_left_s=5 * 86_400)), "uplink_certificate_ends", "expires in 5 days"),
        (uplink_conditions(Link(certificate_left_s=-1)), "uplink_certificate_ends", "has expired"),
        (
            uplink_conditions(Link(connected=False), down_s=240),
            "uplink_down",
            "no connection to the gateway centre:7700 for 4 min, 412 MiB waiting, last error: refused",
        ),
    ],
)
def test_each_fact_is_one_condition_with_its_numbers(found: list[Condition], key: str, text: str) -> None:
    (one,) = found
    assert one.key == key
    assert text in one.text
    assert one.next


def test_what_is_well_is_no_condition() -> None:
    assert store_conditions(StoreSeen()) == []
    assert space_conditions(SpaceSeen(0.5, log_bytes=GIB)) == []
    assert uplink_conditions(Link(60, certificate_left_s=31 * 86_400), limit_bytes=GIB) == []
    assert uplink_conditions(Link(certificate_left_s=0), trusted=False) == []
    assert uplink_conditions(Link(connected=False), down_s=60) == []
    assert uplink_conditions(Link(connected=False, paused=True), down_s=6000) == []
    assert uplink_conditions(Link(connected=False, unshipped_bytes=0), down_s=6000) == []


def test_an_uplink_that_fills_the_disk_says_when_it_gives_up() -> None:
    (soon,) = uplink_conditions(Link(quota_left_s=11_160), limit_bytes=GIB)
    assert soon.text == "unshipped data, 412 MiB, reaches the limit of 1.0 GiB in 3.1 h: then the oldest is dropped"
    (half,) = uplink_conditions(Link(), limit_bytes=500 * MIB)
    assert half.text == "unshipped data, 412 MiB, is over half of the limit of 500 MiB"


@pytest.mark.parametrize(("left_s", "limit"), [(0.0, 412 * MIB), (0.4, 413 * MIB), (-1.0, 400 * MIB)])
def test_a_limit_that_is_reached_is_not_said_to_be_reached_in_0_s(left_s: float, limit: int) -> None:
    (one,) = uplink_conditions(Link(quota_left_s=left_s), limit_bytes=limit)
    assert one.text.startswith(f"unshipped data, 412 MiB, has reached the limit of {limit // MIB} MiB: ")


@pytest.mark.parametrize(
    ("when_full", "then"),
    [
        ("drop_oldest", "the oldest is dropped"),
        ("express_only", "the oldest is dropped, except express topics"),
        ("reject_new", "sends are refused"),
    ],
)
def test_what_happens_at_the_limit_is_what_the_setting_says(when_full: str, then: str) -> None:
    (one,) = uplink_conditions(Link(quota_left_s=0.0), limit_bytes=412 * MIB, when_full=when_full)
    assert one.text == f"unshipped data, 412 MiB, has reached the limit of 412 MiB: {then}"


@pytest.mark.parametrize(
    ("seen", "kind", "text", "step"),
    [
        (SpaceSeen(0.87, 80 * GIB, 3.2, log_bytes=70 * GIB), "disk_filling", "full in 3 h", "store.retention_h"),
        (SpaceSeen(0.91, 80 * GIB, log_bytes=9 * GIB), "sends_refused", "disk 91% full, sends", "what else is on"),
        (
            SpaceSeen(1.0, 80 * GIB, log_bytes=2 * MIB, unshipped_bytes=2 * MIB),
            "sends_refused",
            "disk 100% full, sends are refused",
            "check what else is on the disk: the log is 2 MiB of 80.0 GiB",
        ),
        (
            SpaceSeen(0.91, 80 * GIB, log_bytes=70 * GIB, unshipped_bytes=60 * GIB),
            "sends_refused",
            "sends are refused",
            "uplink.max_lag_bytes limits unshipped data, store.retention_h does not",
        ),
        (SpaceSeen(0.3, full="5 MiB available"), "sends_refused", "refused (5 MiB available)", "store.segment_mib"),
    ],
)
def test_the_disk_names_the_setting_that_helps_for_its_cause(seen: SpaceSeen, kind: str, text: str, step: str) -> None:
    (one,) = space_conditions(seen)
    assert one.id == kind
    assert text in one.text
    assert step in one.next


def test_a_quota_that_does_not_bind_says_why() -> None:
    seen = SpaceSeen(0.4, log_bytes=1800 * MIB, quota_bytes=GIB, segment_bytes=64 * MIB)
    (one,) = space_conditions(seen._replace(unshipped_bytes=1700 * MIB))
    assert one.text == "the log holds 1.8 GiB, store.quota_gib allows 1.0 GiB: 1.7 GiB are unshipped and stay"
    assert "uplink.max_lag_bytes" in one.next
    assert space_conditions(seen._replace(log_bytes=1080 * MIB)) == []  # within the file that is being written


def test_what_was_given_up_is_told_for_a_week_and_what_an_operator_discarded_is_not() -> None:
    lost = GapSeen("missing", "quota_bytes", 16 * MIB, 162, NOON)
    (one,) = gap_conditions([lost] * 12, NOON + DAY_MS)
    assert one.text == (
        "12 ranges of the log, 1,944 messages, 192 MiB, were dropped before the gateway had them (quota_bytes)"
    )
    assert one.mark == NOON
    assert (
        "1 range of the log, 0 messages, 16 MiB, was dropped"
        in gap_conditions([lost._replace(records=None)], NOON)[0].text
    )
    assert gap_conditions([lost], NOON + 8 * DAY_MS) == []
    assert gap_conditions([lost._replace(reason="operator"), lost._replace(kind="rejected")], NOON) == []


def test_a_clock_that_nobody_sets_is_told_after_two_hours() -> None:
    assert clock_conditions(NOON, NOON, 7000) == []
    assert clock_conditions(NOON, NOON + 30_000, 0) == []
    (one,) = clock_conditions(NOON, NOON, 7200)
    assert one.text == "the clock has not been synchronised for 2.0 h: retention by age is paused"
    (one,) = clock_conditions(NOON, NOON + 10_800_000, 7200)
    assert one.text == "the clock says 2027-01-15 08:00 UTC, 3.0 h before the newest message"


def test_replication_is_told_on_either_side() -> None:
    master, slave = {"role": "master", "slaves": []}, {"role": "slave", "master": "m:1", "differs": "", "lost": ""}
    assert replication_conditions(master, 119) + replication_conditions(slave, 119) == []
    assert _told(replication_conditions(master, 240)) == [
        ("no_slave", "no slave for 4 min: this box has the only copy of what came since")
    ]
    assert _told(replication_conditions({**slave, "lost": "refused"}, 240)) == [
        ("master_lost", "no connection to the master m:1 for 4 min, last error: refused")
    ]
    other = {**slave, "differs": "this copy ends at 8192", "lost": "refused"}
    assert _told(replication_conditions(other, 0)) == [("copy_differs", "this copy ends at 8192")]


def _told(found: list[Condition]) -> list[tuple[str, str]]:
    return [(one.id, one.text) for one in found]
