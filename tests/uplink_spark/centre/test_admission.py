"""Admission: no address takes the handshakes of the others, strangers together do not take those of known boxes."""

import pytest

from uplink_spark.centre.admission import (
    KEPT_FOR_KNOWN,
    MOST_ADDRESSES,
    MOST_BEGUN,
    MOST_BEGUN_OF_ONE,
    Admission,
    Begun,
    RateLimit,
    address_of,
)
from uplink_spark.errors import Refused


def tries(admission: Admission, host: str, now: float, count: int) -> list[Begun]:
    """Try to connect; each that is let in ends at once."""
    found = []
    for _ in range(count):
        try:
            begun = admission.begin(host, now)
        except Refused:
            continue
        begun.ended()
        found.append(begun)
    return found


def test_one_address_that_knocks_without_end_takes_its_share_and_leaves_the_rest() -> None:
    admission = Admission()
    assert len(tries(admission, "10.0.0.1", 1000.0, 5000)) == 20
    assert len(tries(admission, "10.0.0.2", 1000.0, 10)) == 10
    assert len(tries(admission, "10.0.0.1", 1001.0, 5000)) == 20, "its share comes back"


def test_many_strangers_take_no_more_than_is_left_beside_known_boxes() -> None:
    admission = Admission()
    admission.begin("10.9.9.9", 999.0).welcomed()
    assert sum(len(tries(admission, f"10.0.1.{number}", 1001.0, 20)) for number in range(250)) == 60
    assert len(tries(admission, "10.9.9.9", 1001.0, 20)) == 20


def test_connections_that_say_nothing_are_counted_until_they_are_welcomed_or_end() -> None:
    admission, held = Admission(10_000), list[Begun]()
    admission.begin("10.9.9.9", 999.0).welcomed()
    for number in range(MOST_BEGUN // MOST_BEGUN_OF_ONE + 5):
        for at in range(MOST_BEGUN_OF_ONE + 5):
            try:
                held.append(admission.begin(f"10.0.2.{number}", 1000.0 + 100 * number + at))
            except Refused:
                break
    assert len(held) == MOST_BEGUN - KEPT_FOR_KNOWN
    with pytest.raises(Refused, match="have not sent HELLO yet"):
        admission.begin("10.0.3.1", 9000.0)
    for _ in range(MOST_BEGUN_OF_ONE):
        admission.begin("10.9.9.9", 9000.0)  # a known box comes in all the same
    with pytest.raises(Refused, match="have not sent HELLO yet"):
        admission.begin("10.9.9.9", 9000.0)
    for begun in held[: MOST_BEGUN_OF_ONE + 1]:
        begun.welcomed()
        begun.ended()  # counted once
    admission.begin("10.0.3.1", 9001.0)
    with pytest.raises(Refused) as refused:
        admission.begin("10.0.3.1", 9001.0)
    assert refused.value.code == "busy"


def test_the_table_of_addresses_has_an_end_and_keeps_the_known_ones_longest() -> None:
    admission = Admission(1_000_000)
    admission.begin("10.9.9.9", 0.0).welcomed()
    for number in range(3 * MOST_ADDRESSES):
        tries(admission, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", number / 100, 1)
    assert len(admission._addresses) <= MOST_ADDRESSES
    assert admission._addresses["10.9.9.9"].known


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("door", "door"),
    ],
)
def test_an_address_is_what_one_subscriber_has(host: str, address: str) -> None:
    assert address_of(host) == address


def test_the_machine_itself_has_no_share_of_its_own() -> None:
    assert len(tries(Admission(), "127.0.0.1", 1000.0, 150)) == 100


def test_a_rate_saves_up_no_more_than_its_burst() -> None:
    rate = RateLimit(10)
    assert [rate.take(1000.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not rate.take(1000.05)
    assert rate.take(1000.15)
    assert sum(rate.take(5000.0) for _ in range(50)) == 10
    slow = RateLimit(1, burst=3)
    assert sum(slow.take(10.0) for _ in range(9)) == 3
