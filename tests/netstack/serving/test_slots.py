"""Whose place a newcomer gets when all are taken."""

from functools import partial

from netstack.serving.slots import ConnectionSlots, Slot, share_of, site_of


class Places:
    """Slots whose connections were silent since a given moment; notes whose place was given away."""

    def __init__(self) -> None:
        self.slots, self.ended = ConnectionSlots(), list[str]()

    def take(self, address: str, silent_since: float, name: str = "") -> Slot:
        slot = Slot(address, 0.0, lambda: self.ended.append(name))
        slot.silent_since = lambda: silent_since
        self.slots.add(slot)
        return slot


def test_an_ipv6_address_shares_with_its_64_and_is_weighed_with_its_48() -> None:
    assert share_of("10.0.0.1") == site_of("10.0.0.1") == "10.0.0.1"
    assert share_of("2001:db8:1:2::3") == share_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert site_of("2001:db8:1:2::3") == site_of("2001:db8:1:9::3") == "2001:db8:1::/48"
    assert (share_of("::1"), share_of("unix")) == ("::1", "unix")


def test_connections_to_an_own_address_end_when_it_goes_and_busy_ones_when_they_are_told_to() -> None:
    slots, ended = ConnectionSlots(), list[str]()
    for name, at, busy in (("idle", "10.0.0.9", False), ("busy", "10.0.0.9", True), ("elsewhere", "10.0.0.8", False)):
        slot = Slot("10.0.0.1", 0.0, partial(ended.append, name), at=at)
        slot.busy = partial(bool, busy)
        slots.add(slot)
    assert slots.end_at("10.0.0.9", busy=False) == 1
    assert ended == ["idle"]
    assert slots.end_at("10.0.0.9", busy=True) == 0
    assert set(ended) == {"idle", "busy"}


def test_the_address_with_the_most_gives_up_the_one_that_was_silent_longest() -> None:
    places = Places()
    places.take("10.0.0.2", 0.0)
    oldest = places.take("10.0.0.1", 5.0)
    for moment in (7.0, 6.0, 9.0):
        places.take("10.0.0.1", moment)
    assert places.slots.to_give("10.0.0.3") is oldest


def test_who_has_a_share_as_large_gets_no_more() -> None:
    places = Places()
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        places.take(address, 1.0)
    assert places.slots.to_give("10.0.0.1") is None
    assert places.slots.to_give("10.0.0.2") is None
    assert places.slots.to_give("10.0.0.3") is not None


def test_a_flood_from_many_networks_of_one_site_is_one_site() -> None:
    places = Places()
    for number in range(50):
        places.take(f"2001:db8:1:{number:x}::1", float(number))
    places.take("10.0.0.1", 0.0)
    given = places.slots.to_give("10.0.0.2")
    assert given is not None
    assert given.site == "2001:db8:1::/48"
    assert places.slots.to_give("2001:db8:1:ffff::1") is None


def test_who_has_signed_or_waits_for_an_answer_keeps_the_place() -> None:
    places = Places()
    signed, busy, idle = (places.take("10.0.0.1", moment) for moment in (1.0, 2.0, 3.0))
    signed.signed = busy.busy = lambda: True
    assert places.slots.to_give("10.0.0.2") is idle
    places.slots.remove(idle)
    assert places.slots.to_give("10.0.0.2") is None


def test_a_place_is_given_back_once() -> None:
    places = Places()
    slot = places.take("10.0.0.1", 1.0)
    places.slots.remove(slot)
    places.slots.remove(slot)
    assert places.slots.to_give("10.0.0.2") is None


def test_who_is_served_elsewhere_neither_gives_a_place_nor_counts() -> None:
    places = Places()
    relayed = [places.take("10.0.0.1", 0.0) for _ in range(5)]
    for slot in relayed:
        slot.elsewhere = lambda: True
    assert (places.slots.elsewhere(), places.slots.to_give("10.0.0.9")) == (5, None)
    held = [places.take("10.0.0.2", moment) for moment in (4.0, 3.0)]
    assert places.slots.to_give("10.0.0.9") is held[1]
    assert places.slots.to_give("10.0.0.2") is None
