"""Who is connected, as the table has it: limits, expiry, names."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.filter.subscriptions import Subscription
from appliance.broker.tables.clients import ClientTable, Joining, Member
from appliance.testing import FakePeer
from netstack.errors import Refused
from netstack.wire.command import request


def joining(group: str, *subscriptions: Subscription) -> Joining:
    return Joining(group, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", subscriptions)


def test_a_group_s_subscriptions_mirror_the_last_heartbeat() -> None:
    clients, changed, resubscribed = ClientTable(now_ms=lambda: 0), list[Any](), list[Any]()
    clients.changed, clients.resubscribed = changed.append, resubscribed.append
    one, other = FakePeer(1), FakePeer(2)
    clients.consumer_joined(one, Member("a", "JAVA", 409, 0), joining("g", Subscription("T", "A", version=1)))
    clients.consumer_joined(one, Member("a", "JAVA", 409, 0), joining("g", Subscription("T", "B", version=2)))
    assert (changed, resubscribed) == (["g"], ["g", "g"])
    clients.consumer_joined(other, Member("b", "JAVA", 409, 0), joining("g", Subscription("U", version=1)))
    group = clients.consumers("g")
    assert group is not None
    assert (list(group.subscriptions), group.client_ids()) == (["U"], ["a", "b"])
    clients.consumer_joined(other, Member("b", "JAVA", 409, 0), joining("g", Subscription("U", "x", version=0)))
    assert group.subscriptions["U"].text == "*"  # older: kept


def test_a_client_that_reconnected_is_told_once_while_its_old_connection_is_there() -> None:
    clients = ClientTable(now_ms=lambda: 0)
    for number, name in ((1, "a"), (2, "b"), (3, "a")):  # the end of the first connection has not come
        clients.consumer_joined(FakePeer(number), Member(name, "GO", 409, 0), joining("g"))
    group = clients.consumers("g")
    assert group is not None
    assert group.client_ids() == ["a", "b"], "with three of them nobody would have a third of the queues"


def test_who_is_silent_for_two_minutes_is_forgotten_and_a_producer_known_by_requests_is_not_closed() -> None:
    now_ms = 0
    clients = ClientTable(now_ms=lambda: 0, uptime_ms=lambda: now_ms)
    consumer, producer = FakePeer(1), FakePeer(2)
    clients.consumer_joined(consumer, Member("a", "JAVA", 409, 0), joining("g"))
    clients.producer_seen(producer, "pg", request(310))
    now_ms = 120_000
    assert clients.expire() == []
    now_ms = 120_001
    assert clients.expire() == [consumer]
    assert (clients.consumers("g"), clients.producers("pg")) == (None, {})


def test_setting_the_clock_makes_nobody_silent() -> None:
    wall_ms, uptime_ms = 1_000, 500  # a box without a battery for its clock begins in 1970
    clients, peer = ClientTable(now_ms=lambda: wall_ms, uptime_ms=lambda: uptime_ms), FakePeer(1)
    clients.consumer_joined(peer, Member("a", "JAVA", 409, wall_ms), joining("g"))
    wall_ms, uptime_ms = 1_700_000_000_000, 10_500
    assert clients.expire() == []
    wall_ms, uptime_ms = 1_000, 130_501
    assert clients.expire() == [peer]


def test_a_client_that_asks_for_replies_is_found_by_the_name_it_gave() -> None:
    clients, peer = ClientTable(now_ms=lambda: 0), FakePeer(1)
    clients.producer_seen(peer, "pg", request(310))
    assert clients.find_client("me@1") is None
    clients.producer_seen(peer, "pg", request(310), "me@1")
    assert clients.find_client("me@1") is peer
    peer.close()
    assert (clients.find_client("me@1"), len(clients)) == (None, 0)


def test_clients_beyond_the_limit_are_refused() -> None:
    clients = ClientTable(most=1, now_ms=lambda: 0)
    clients.producer_joined(FakePeer(1), "pg", Member("a", "JAVA", 409, 0))
    with pytest.raises(Refused, match=r"limits\.clients"):
        clients.producer_joined(FakePeer(2), "pg", Member("b", "JAVA", 409, 0))


def test_what_one_connection_can_make_the_table_remember_is_bounded() -> None:
    clients, peer = ClientTable(now_ms=lambda: 0), FakePeer(1)
    for number in range(500):
        clients.producer_seen(peer, f"pg{number}", request(310))
        clients.producer_seen(peer, "pg0", request(310), f"id@{number}")
    assert len(clients.producer_groups()) == 64
    assert [clients.find_client(f"id@{number}") for number in (0, 499)] == [None, peer]
    for number in range(1000):
        clients.consumer_joined(peer, Member("c", "JAVA", 409, 0), joining(f"g{number}"))
    with pytest.raises(Refused, match="at most 1000 are allowed"):
        clients.consumer_joined(peer, Member("c", "JAVA", 409, 0), joining("one more"))
    peer.close()
    assert (clients.producer_groups(), clients.consumer_groups(), clients.find_client("c")) == ([], [], None)


def test_subscriptions_of_all_groups_together_have_a_budget() -> None:
    clients = ClientTable(now_ms=lambda: 1)
    long = tuple(Subscription(f"T{number}", "a" * 100_000, "SQL92") for number in range(100))

    def join(number: int) -> None:
        clients.consumer_joined(FakePeer(number), Member(f"c{number}", "JAVA", 409, 1), joining(f"G{number}", *long))

    with pytest.raises(Refused, match="which is the limit"):
        any(map(join, range(10)))
    assert 3 <= len(clients.consumer_groups()) <= 5
    again = joining("G0", *long)
    peer = FakePeer(0)
    clients.consumer_joined(peer, Member("c0", "JAVA", 409, 1), again)  # no more than before
    for name in clients.consumer_groups():
        group = clients.consumers(name)
        assert group is not None
        for member in list(group.members):
            clients.left(member, consumer_group=name)
    clients.consumer_joined(peer, Member("c0", "JAVA", 409, 1), again)
    assert clients.consumer_groups() == ["G0"]


SOME = [Subscription(topic, text) for topic in ("T", "U") for text in ("*", "a || b")]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["consume", "produce", "seen", "leave consumers", "leave producers", "close", "wait", "expire"]
        ),
        st.integers(0, 2),
        st.sampled_from(["g", "h"]),
        st.lists(st.sampled_from(SOME), max_size=2, unique_by=lambda each: each.topic),
    ),
    max_size=30,
)


@settings(max_examples=25)
@given(steps)
def test_after_any_sequence_the_table_agrees_with_itself_and_holds_nothing_of_who_left(
    sequence: list[tuple[str, int, str, list[Subscription]]],
) -> None:
    uptime, changed = [0], list[str]()
    table = ClientTable(now_ms=lambda: 5, uptime_ms=lambda: uptime[0])
    table.changed = changed.append
    peers = [FakePeer(number) for number in range(3)]
    members: dict[str, set[int]] = {"g": set(), "h": set()}
    for what, number, group, wanted in sequence:
        peer, member = peers[number], Member(f"c{number}", "JAVA", 409, 5)
        if what == "consume":
            table.consumer_joined(peer, member, joining(group, *wanted))
            members[group].add(number)
        elif what == "produce":
            table.producer_joined(peer, group, member)
        elif what == "seen":
            table.producer_seen(peer, group, request(10))
        elif what == "leave consumers":
            table.left(peer, consumer_group=group)
            members[group].discard(number)
        elif what == "leave producers":
            table.left(peer, producer_group=group)
        elif what == "close":
            table.closed(peer)
            for each in members.values():
                each.discard(number)
        elif what == "wait":
            uptime[0] += 70_000
        else:
            for silent in table.expire():
                for each in members.values():
                    each.discard(silent.id)
        for name, expected in members.items():
            found = table.consumers(name)
            assert ({peer.id for peer in found.members} if found else set()) == expected
        groups = [found for name in table.consumer_groups() if (found := table.consumers(name))]
        assert table._subscriptions_bytes == sum(group.cost for group in groups)
    for peer in peers:
        table.closed(peer)
    assert (len(table), table.consumer_groups(), table.producer_groups(), table._subscriptions_bytes) == (0, [], [], 0)
    assert (table._by_client_id, table._ids_of) == ({}, {}), "names of connections that are gone"
    assert table.find_client("c0") is None


def test_a_change_of_members_or_topics_is_told_and_a_heartbeat_that_says_the_same_is_not() -> None:
    told: list[str] = []
    table = ClientTable(now_ms=lambda: 5)
    table.changed, table.resubscribed = (lambda g: told.append(f"changed {g}")), (lambda g: told.append(f"again {g}"))
    peer, other = FakePeer(1), FakePeer(2)

    def beat(who: FakePeer, *wanted: Subscription) -> list[str]:
        told.clear()
        table.consumer_joined(who, Member("c", "JAVA", 409, 5), joining("g", *wanted))
        return list(told)

    assert beat(peer, Subscription("T", version=1)) == ["changed g", "again g"]
    assert beat(peer, Subscription("T", version=1)) == []
    assert beat(other, Subscription("T", version=1)) == ["changed g"]
    assert beat(peer, Subscription("T", "a", version=2)) == ["again g"]
    assert beat(peer, Subscription("T", "b", version=1)) == [], "an older version does not win"
    assert beat(peer, Subscription("T", "b", version=1), Subscription("U")) == ["changed g", "again g"]
    told.clear()
    table.left(peer, consumer_group="other")
    assert told == []
    peer.close()
    peer.close()
    assert told == ["changed g"]


def test_the_newest_connection_of_a_client_is_the_one_that_is_asked() -> None:
    table, old, new = ClientTable(now_ms=lambda: 5), FakePeer(1), FakePeer(2)
    for peer in (old, new):
        table.consumer_joined(peer, Member("c", "JAVA", 409, 5), joining("g"))
    assert (table.by_client_id("g", "c"), table.find_client("c")) == (new, new)
    new.close()
    assert (table.by_client_id("g", "c"), table.find_client("c")) == (old, old)
    assert (table.by_client_id("h", "c"), table.by_client_id("g", "d"), table.find_client("d")) == (None, None, None)


@pytest.mark.parametrize(("group", "client_id"), [("g" * 256, "c"), ("g", "c" * 1025)])
def test_names_that_no_client_has_are_not_kept(group: str, client_id: str) -> None:
    clients, peer = ClientTable(now_ms=lambda: 0), FakePeer(1)
    with pytest.raises(Refused, match="at most 255 and 1024 are allowed"):
        clients.consumer_joined(peer, Member(client_id, "JAVA", 409, 0), joining(group))
    with pytest.raises(Refused, match="at most 255 and 1024 are allowed"):
        clients.producer_joined(peer, group, Member(client_id, "JAVA", 409, 0))
    clients.producer_seen(peer, group, request(310), client_id)
    assert (clients.consumer_groups(), clients.producer_groups(), clients.owners(client_id)) == ([], [], set())


def test_groups_of_all_connections_together_have_a_budget_beyond_a_few_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.broker.tables.clients.MOST_SUBSCRIPTIONS_BYTES", 5000)
    clients, first, second = ClientTable(now_ms=lambda: 0), FakePeer(1), FakePeer(2)
    for number in range(16):
        clients.producer_joined(first, f"few{number}", Member("c", "JAVA", 409, 0))
    for number in range(5):
        clients.producer_joined(first, f"more{number}", Member("c", "JAVA", 409, 0))
    with pytest.raises(Refused, match="groups and subscriptions take 5000 bytes"):
        clients.producer_joined(first, "one more", Member("c", "JAVA", 409, 0))
    clients.producer_seen(first, "sends only", request(310))  # its sends go on
    assert "sends only" not in clients.producer_groups()
    clients.producer_joined(second, "a first", Member("d", "JAVA", 409, 0))
    clients.left(first, producer_group="more0")
    clients.producer_joined(first, "one more", Member("c", "JAVA", 409, 0))
    clients.closed(first)
    for number in range(20):
        clients.producer_joined(second, f"group{number}", Member("d", "JAVA", 409, 0))
