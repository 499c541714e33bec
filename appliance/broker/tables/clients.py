"""Connected clients: members of consumer groups with their subscriptions, and producers of producer groups.

Members are keyed by connection; client ids and producer groups are names inside the key that signs on it. A group's
subscriptions mirror the last heartbeat of any member, so all members must subscribe alike. Source: RocketMQ 4.9.8
ConsumerManager, ConsumerGroupInfo, ProducerManager.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from appliance.broker.filter.subscriptions import Subscription
from appliance.broker.rights import owner_of
from appliance.requests import RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.named_tuple import NamedTuple

REMOTING, GRPC = "remoting", "grpc_v2"  # protocols, by the names that metrics of RocketMQ 5 have for them
EXPIRY_MS = 120_000
MOST_GROUPS = 1000  # of each kind per connection
_CONSUMER, _PRODUCER = 0, 1  # kinds of groups of a connection
MOST_SUBSCRIPTIONS_BYTES = 48 << 20  # of all groups together, by cost_of
LONGEST_GROUP, LONGEST_ID = 255, 1024  # characters; Java's own limit of a group's name
FEW_GROUPS, GROUP_BYTES = 16, 1000  # of a connection, not counted; what each of the others takes of that budget
MOST_SEEN, MOST_NAMES = 64, 16  # producer groups known from requests alone, client ids; per connection


class Library(Protocol):
    """The client library of a peer, as each of its requests names it."""

    @property
    def language(self) -> str: ...
    @property
    def version(self) -> int: ...


class Member:
    """One connection in one group; `beats` is false for a producer known only by its requests."""

    __slots__ = ("beats", "client_id", "heard_ms", "language", "protocol", "seen_ms", "version")

    def __init__(
        self,
        client_id: str,
        language: str,
        version: int,
        seen_ms: int,
        beats: bool = True,
        *,
        protocol: str = REMOTING,
    ) -> None:
        self.client_id, self.language, self.version = client_id, language, version
        self.seen_ms, self.beats, self.protocol = seen_ms, beats, protocol
        self.heard_ms = 0  # as seen_ms, by a clock that nobody sets


class ConsumerGroup:
    """The members of a group and what its last heartbeat said."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[RequestPeer, Member] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.consume_type = "CONSUME_PASSIVELY"
        self.message_model = "CLUSTERING"
        self.consume_from = "CONSUME_FROM_LAST_OFFSET"
        self.changed_ms = 0
        self.cost = 0  # bytes of memory of the last heartbeat's subscriptions

    @property
    def broadcasting(self) -> bool:
        return self.message_model == "BROADCASTING"

    def client_ids(self) -> list[str]:
        """Return the members' client ids, each once: one that reconnected may have its old connection beside the new.

        Clients share queues by the length of this list: with an id that is there twice nobody would have some of them.
        """
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def update_subscriptions(self, wanted: Iterable[Subscription]) -> tuple[bool, bool]:
        """Take over one heartbeat's subscriptions; return whether the topics changed, and whether anything did."""
        new = {subscription.topic: subscription for subscription in wanted}
        topics_changed = new.keys() != self.subscriptions.keys()
        replaced = False
        for topic, subscription in new.items():
            old = self.subscriptions.get(topic)
            if old is not None and old.version >= subscription.version:
                new[topic] = old
            elif old is None or (old.text, old.kind) != (subscription.text, subscription.kind):
                replaced = True
        self.subscriptions = new
        return topics_changed, topics_changed or replaced


class Joining(NamedTuple):
    """What a heartbeat says about one consumer group."""

    group: str
    consume_type: str
    message_model: str
    consume_from: str
    subscriptions: tuple[Subscription, ...]
    unit: bool = False


def _uptime_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ClientTable:
    """Groups -> members. `changed(group)` is called when members or topics of a consumer group changed,
    `resubscribed(group)` when what it subscribes to did.
    """

    def __init__(
        self, *, most: int = 4096, now_ms: Callable[[], int], uptime_ms: Callable[[], int] = _uptime_ms
    ) -> None:
        self._most, self._now_ms, self._uptime_ms = most, now_ms, uptime_ms
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[RequestPeer, Member]] = {}
        self._groups_of: dict[RequestPeer, tuple[set[str], set[str]]] = {}  # peer -> its consumer and producer groups
        self._by_client_id: dict[str, dict[RequestPeer, None]] = {}
        self._ids_of: dict[RequestPeer, dict[str, None]] = {}
        self._subscriptions_bytes = 0
        self.changed: Callable[[str], None] = _ignore
        self.resubscribed: Callable[[str], None] = _ignore

    def consumers(self, group: str) -> ConsumerGroup | None:
        """Return a consumer group with at least one member."""
        return self._consumers.get(group)

    def producers(self, group: str) -> Mapping[RequestPeer, Member]:
        """Return the producers of a group."""
        return self._producers.get(group, {})

    def consumer_groups(self) -> list[str]:
        return list(self._consumers)

    def producer_groups(self) -> list[str]:
        return list(self._producers)

    def __len__(self) -> int:
        return len(self._groups_of)

    def by_client_id(self, group: str, client_id: str) -> RequestPeer | None:
        """Return the newest connection of one consumer of a group."""
        found = self._consumers.get(group)
        members = reversed(found.members.items()) if found else ()
        return next((peer for peer, member in members if member.client_id == client_id), None)

    def find_client(self, client_id: str, owner: str | None = None) -> RequestPeer | None:
        """Return the newest connection of a client: of one owner's, or whoever has that id."""
        peers = reversed(self._by_client_id.get(client_id, {}))
        return next((peer for peer in peers if owner is None or owner_of(peer) == owner), None)

    def owners(self, client_id: str) -> set[str]:
        """Return whose connections have a client id; those that came without a key have one owner, NOBODY."""
        return set(map(owner_of, self._by_client_id.get(client_id, ())))

    def consumer_joined(self, peer: RequestPeer, member: Member, joining: Joining) -> None:
        """Take in one consumer group of a heartbeat. Raises Refused at the limits of clients and of subscriptions."""
        group = self._consumers.get(joining.group)
        cost = sum(map(cost_of, joining.subscriptions))
        self._check_room(cost - (group.cost if group else 0))
        _check_names(joining.group, member.client_id)
        self._add(self._own(peer), _CONSUMER, joining.group)
        if group is None:
            group = self._consumers[joining.group] = ConsumerGroup(joining.group)
        self._name(peer, member.client_id)
        new_member, member.heard_ms = peer not in group.members, self._uptime_ms()
        group.members[peer] = member
        group.consume_type, group.message_model = joining.consume_type, joining.message_model
        group.consume_from, group.changed_ms = joining.consume_from, self._now_ms()
        topics_changed, any_changed = group.update_subscriptions(joining.subscriptions)
        self._subscriptions_bytes += cost - group.cost
        group.cost = cost
        if new_member or topics_changed:
            self.changed(joining.group)
        if any_changed:
            self.resubscribed(joining.group)

    def _check_room(self, more: int) -> None:
        if more > 0 and self._subscriptions_bytes + more > MOST_SUBSCRIPTIONS_BYTES:
            text = f"groups and subscriptions take {self._subscriptions_bytes} bytes, which is the limit"
            raise Refused(ResponseCode.SYSTEM_BUSY, text)

    def producer_joined(self, peer: RequestPeer, group: str, member: Member) -> None:
        """Take in one producer group of a heartbeat. Raises Refused at the limit of clients."""
        _check_names(group, member.client_id)
        self._add(self._own(peer), _PRODUCER, group)
        self._name(peer, member.client_id)
        member.heard_ms = self._uptime_ms()
        self._producers.setdefault(group, {})[peer] = member

    def produces(self, peer: RequestPeer, group: str) -> bool:
        """Return whether a connection is known as a producer of a group."""
        own = self._groups_of.get(peer)
        return own is not None and group in own[1]

    def connected(self, peer: RequestPeer) -> bool:
        """Return whether a known client still has its connection."""
        return peer in self._groups_of and not peer.hung_up

    def producer_seen(self, peer: RequestPeer, group: str, library: Library, client_id: str | None = None) -> None:
        """Know a producer from its request, so that check-backs and replies need not wait for its first heartbeat."""
        known = self._producers.get(group, {}).get(peer)
        if known is not None and (client_id is None or known.beats or known.client_id == client_id):
            return
        own = self._groups_of.get(peer)
        if known is None and own is not None and (len(own[1]) >= MOST_SEEN or not self._has_room_for_group(own)):
            return  # nobody calls back a producer that changes its group with each message
        if len(group) > LONGEST_GROUP or len(client_id or "") > LONGEST_ID:
            return
        name = client_id or f"{peer.remote[0]}@{peer.remote[1]}"
        member = Member(name, library.language, library.version, self._now_ms(), beats=False)
        self.producer_joined(peer, group, member)

    def left(self, peer: RequestPeer, *, consumer_group: str | None = None, producer_group: str | None = None) -> None:
        """Remove a connection from the groups it unregisters from."""
        if consumer_group:
            self._leave_consumers(peer, consumer_group)
        if producer_group:
            self._leave_producers(peer, producer_group)

    def closed(self, peer: RequestPeer) -> None:
        """Remove a connection that ended from every group."""
        own = self._groups_of.pop(peer, None)
        for client_id in list(self._ids_of.get(peer, ())):
            self._forget_name(peer, client_id)
        self._ids_of.pop(peer, None)
        if own is not None:
            self._subscriptions_bytes -= GROUP_BYTES * max(0, len(own[0]) + len(own[1]) - FEW_GROUPS)
            for group in own[0].copy():
                self._leave_consumers(peer, group)
            for group in own[1].copy():
                self._leave_producers(peer, group)

    def expire(self) -> list[RequestPeer]:
        """Remove who has not been heard of for two minutes and return the connections to close."""
        oldest_ms, silent = self._uptime_ms() - EXPIRY_MS, []
        for peer in list(self._groups_of):
            memberships = list(self._memberships(peer))
            old = [item for item in memberships if item[1].heard_ms < oldest_ms]
            for group, member in old:
                if not member.beats:
                    self._leave_producers(peer, group)
            if any(member.beats for _, member in old):
                self.closed(peer)
                silent.append(peer)
        return silent

    def _memberships(self, peer: RequestPeer) -> Iterator[tuple[str, Member]]:
        consumer_groups, producer_groups = self._groups_of[peer]
        for name in consumer_groups:
            yield name, self._consumers[name].members[peer]
        for name in producer_groups:
            yield name, self._producers[name][peer]

    def _own(self, peer: RequestPeer) -> tuple[set[str], set[str]]:
        own = self._groups_of.get(peer)
        if own is None:
            if len(self._groups_of) >= self._most:
                raise Refused(
                    ResponseCode.SYSTEM_BUSY, f"{len(self._groups_of)} clients, limits.clients allows {self._most}"
                )
            own = self._groups_of[peer] = (set(), set())
            peer.on_close(lambda: self.closed(peer))
        return own

    def _add(self, own: tuple[set[str], set[str]], kind: int, group: str) -> None:
        """Put a group among those of a connection. Raises Refused at the limits."""
        if group in own[kind]:
            return
        if len(own[kind]) >= MOST_GROUPS:
            text = f"{len(own[kind])} groups on one connection, at most {MOST_GROUPS} are allowed"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        if len(own[0]) + len(own[1]) >= FEW_GROUPS:
            self._check_room(GROUP_BYTES)
            self._subscriptions_bytes += GROUP_BYTES
        own[kind].add(group)

    def _has_room_for_group(self, own: tuple[set[str], set[str]]) -> bool:
        few = len(own[0]) + len(own[1]) < FEW_GROUPS
        return few or self._subscriptions_bytes + GROUP_BYTES <= MOST_SUBSCRIPTIONS_BYTES

    def _discard(self, peer: RequestPeer, kind: int, group: str) -> None:
        own = self._groups_of.get(peer)
        if own is not None and group in own[kind]:
            own[kind].discard(group)
            self._subscriptions_bytes -= GROUP_BYTES * (len(own[0]) + len(own[1]) >= FEW_GROUPS)

    def _name(self, peer: RequestPeer, client_id: str) -> None:
        names = self._ids_of.setdefault(peer, {})
        if client_id not in names:
            if len(names) >= MOST_NAMES:
                self._forget_name(peer, next(iter(names)))
            names[client_id] = None
            self._by_client_id.setdefault(client_id, {})[peer] = None

    def _forget_name(self, peer: RequestPeer, client_id: str) -> None:
        self._ids_of[peer].pop(client_id, None)
        peers = self._by_client_id[client_id]
        peers.pop(peer, None)
        if not peers:
            del self._by_client_id[client_id]

    def _leave_consumers(self, peer: RequestPeer, name: str) -> None:
        group = self._consumers.get(name)
        if group is None or group.members.pop(peer, None) is None:
            return
        self._discard(peer, _CONSUMER, name)
        if not group.members:
            del self._consumers[name]
            self._subscriptions_bytes -= group.cost
        self.changed(name)

    def _leave_producers(self, peer: RequestPeer, name: str) -> None:
        members = self._producers.get(name)
        if members is not None and members.pop(peer, None) is not None and not members:
            del self._producers[name]
        self._discard(peer, _PRODUCER, name)


def cost_of(subscription: Subscription) -> int:
    """Return about how many bytes of memory a subscription takes."""
    texts = len(subscription.topic) + len(subscription.text) + sum(len(tag) + 60 for tag in subscription.tags)
    return 600 + texts + 100 * len(subscription.codes)


def _check_names(group: str, client_id: str) -> None:
    if len(group) > LONGEST_GROUP or len(client_id) > LONGEST_ID:
        found = f"a group of {len(group)} characters, a clientID of {len(client_id)}"
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{found}, at most {LONGEST_GROUP} and {LONGEST_ID} are allowed")


def _ignore(group: str) -> None:
    """No listener yet."""
