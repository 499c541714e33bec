"""Who serves which topic: the box itself and every other broker that registered here.

Invariant: a broker row has at least one address, a topic row at least one queue row, a cluster at least one broker.
The own broker is no row of these tables: it is asked at every question, so it is never stale and never expires.
Source: RocketMQ 4.9.8 RouteInfoManager.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from netstack.wire.json_body import MessageQueue
from storage_driver.named_tuple import NamedTuple

READ, WRITE, INHERIT = 4, 2, 1
UNIT, UNIT_SUB = 1, 2
MASTER = 0
EXPIRY_S = 120.0
MAX_BROKERS, MAX_ADDRESSES, MAX_QUEUE_ROWS = 256, 1024, 100_000  # what strangers can make this table grow to
MAX_CLUSTERS = 256
MOST = 1 << 16  # queues of a topic, whatever brokers told
HIDDEN_TOPICS = frozenset({"RBX_PROBE", "RBX_STATE", "RBX_RAFT"})


class TopicTableVersion(NamedTuple):
    """Changes with every change of a topic table. `state` is 5.x only and counts only if both sides have one."""

    counter: int = 0
    timestamp: int = 0
    state: int = 0

    def same_as(self, other: "TopicTableVersion") -> bool:
        state_differs = self.state and other.state and self.state != other.state
        return (self.counter, self.timestamp) == (other.counter, other.timestamp) and not state_differs


class BrokerQueues(NamedTuple):
    """The queues of one topic on one broker."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0


class BrokerRow(NamedTuple):
    """The addresses of one broker name, by broker id (0 is the master)."""

    cluster: str
    name: str
    addresses: Mapping[int, str]


class Route(NamedTuple):
    """All a client needs to reach the queues of one topic."""

    brokers: list[BrokerRow]
    queues: list[BrokerQueues]
    filter_servers: dict[str, list[str]]


class OwnBroker(NamedTuple):
    """The box's own broker: its topics are asked for, not copied."""

    name: str
    cluster: str
    topic: Callable[[str], BrokerQueues | None]
    topics: Callable[[], Iterable[tuple[str, BrokerQueues]]]
    version: Callable[[], TopicTableVersion]
    addresses: Callable[[str], dict[int, str]] = lambda asked_at: {MASTER: asked_at}  # own, and of those with its log


class Registration(NamedTuple):
    """What another broker says about itself. `topics` None: it sent no table, keep what is known."""

    name: str
    address: str
    cluster: str
    ha_address: str
    broker_id: int
    version: TopicTableVersion
    topics: Mapping[str, BrokerQueues] | None
    filter_servers: list[str] | None = None
    expiry_s: float = EXPIRY_S
    owner: str = ""  # the key or the address that it came from


class Live:
    """The last sign of life of one broker address."""

    def __init__(self, told: Registration, channel: int, seen_s: float) -> None:
        self.seen_s, self.channel = seen_s, channel
        self.version, self.ha_address, self.expiry_s = told.version, told.ha_address, told.expiry_s
        self.owner = told.owner


class _Overlay:
    """Changes made here to the own broker's routes; they end when its data version changes."""

    def __init__(self, version: TopicTableVersion) -> None:
        self.version = version
        self.perms: dict[str, int] = {}
        self.deleted: set[str] = set()


class RouteTable:
    """The five tables of a NameServer. Every method leaves them consistent; none blocks."""

    def __init__(self, own: OwnBroker) -> None:
        self._own = own
        self._overlay = _Overlay(own.version())
        self._queues: dict[str, dict[str, BrokerQueues]] = {}  # topic -> broker name ->
        self._brokers: dict[str, dict[int, str]] = {}
        self._cluster_of: dict[str, str] = {}  # fixed when the broker name first appears
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[str, Live] = {}  # broker address ->
        self._filter_servers: dict[str, list[str]] = {}
        self._channels: set[int] = set()

    # questions

    def route(self, topic: str, asked_at: str) -> Route | None:
        """Return the route of a topic; asked_at is the own broker's address as the asking client reaches it."""
        rows = self._queue_rows(topic)
        brokers = [row for name in rows if (row := self._broker(name, asked_at))]
        if not rows or not brokers:
            return None
        addresses = [address for row in brokers if row.name != self._own.name for address in row.addresses.values()]
        filters = {address: self._filter_servers[address] for address in addresses if address in self._filter_servers}
        return Route(brokers, list(rows.values()), filters)

    def readable(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a topic's consumers share, over all brokers; past MOST whoever told most is cut."""
        rows = sorted(
            (row for row in self._queue_rows(topic).values() if row.perm & READ), key=lambda row: row.read_queues
        )
        found = (MessageQueue(topic, row.broker_name, number) for row in rows for number in range(row.read_queues))
        return list(islice(found, MOST))

    def brokers(self, asked_at: str) -> list[BrokerRow]:
        """Return every broker, the own one first."""
        names = [self._own.name, *(name for name in self._brokers if name != self._own.name)]
        return [row for name in names if (row := self._broker(name, asked_at))]

    def clusters(self) -> dict[str, list[str]]:
        """Return cluster name → broker names; a broker that moved between clusters is in both until it is gone."""
        table = {self._own.cluster: [self._own.name]}
        for cluster, names in self._clusters.items():
            listed = table.setdefault(cluster, [])
            listed += [name for name in names if name not in listed]
        return table

    def topics(self) -> list[str]:
        return list(self._all_rows())

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics with a queue on any broker of the cluster; none for an unknown cluster."""
        names = set(self.clusters().get(cluster, ()))
        return [topic for topic, rows in self._all_rows().items() if names.intersection(rows)]

    def topics_with_flags(self, wanted: int, unwanted: int = 0) -> list[str]:
        """Return the topics whose first queue row has all wanted and no unwanted system flags."""
        firsts = ((topic, next(iter(rows.values())).sys_flag) for topic, rows in self._all_rows().items())
        return [topic for topic, flags in firsts if flags & wanted == wanted and not flags & unwanted]

    def system_topics(self) -> list[str]:
        """Return cluster and broker names: both exist as topics on every broker."""
        names = [name for cluster, brokers in self.clusters().items() for name in (cluster, *brokers)]
        return list(dict.fromkeys(names))

    def version_of(self, address: str) -> TopicTableVersion | None:
        live = self._live.get(address)
        return live.version if live else None

    def new_channel(self, channel: int) -> bool:
        """Return whether this connection registers for the first time; who asks calls `channel_closed` at its end."""
        new = channel not in self._channels
        self._channels.add(channel)
        return new

    def is_own(self, name: str) -> bool:
        """True for the one name that nobody else may register, whatever the broker id."""
        return name == self._own.name

    def others(self, name: str, address: str, broker_id: int, owner: str) -> str | None:
        """Return the registered address that somebody else brought and that a request of this owner would touch.

        That is the address itself, and what stands at this broker name and id. Nothing is anybody's once it is gone:
        with its connection, its farewell or its silence.
        """
        for found in (address, self._brokers.get(name, {}).get(broker_id)):
            live = self._live.get(found) if found is not None else None
            if live is not None and live.owner != owner:
                return found
        return None

    # registrations

    def is_full_for(self, told: Registration) -> bool:
        """True when a registration would exceed what strangers may store here."""
        name, topics = told.name, told.topics or {}
        rows = sum(len(row) for row in self._queues.values()) + len(topics)
        new_broker = name not in self._brokers and len(self._brokers) >= MAX_BROKERS
        new_address = told.address not in self._live and len(self._live) >= MAX_ADDRESSES
        new_cluster = told.cluster not in self._clusters and len(self._clusters) >= MAX_CLUSTERS
        many_rows = rows > MAX_QUEUE_ROWS and not self._knows_all(name, topics)
        return new_broker or new_address or new_cluster or many_rows

    def register(self, told: Registration, channel: int, now_s: float) -> tuple[str, str] | None:
        """Take in one registration; return (HA address, address) of the living master to its slave."""
        self._clusters.setdefault(told.cluster, {})[told.name] = None
        self._cluster_of.setdefault(told.name, told.cluster)
        addresses = self._brokers.setdefault(told.name, {})
        for other_id in [i for i, address in addresses.items() if address == told.address and i != told.broker_id]:
            del addresses[other_id]
        first = told.broker_id not in addresses
        addresses[told.broker_id] = told.address
        known = self._live.get(told.address)
        changed = first or known is None or not known.version.same_as(told.version)
        if told.topics is not None and told.broker_id == MASTER and changed:
            for topic, row in told.topics.items():  # merges: a topic that is not in the table stays
                self._queues.setdefault(topic, {})[told.name] = row
        self._live[told.address] = Live(told, channel, now_s)
        self._take_filter_servers(told)
        master = addresses.get(MASTER)
        if told.broker_id == MASTER or master is None or master not in self._live:
            return None
        return self._live[master].ha_address, master

    def unregister(self, name: str, address: str, broker_id: int) -> None:
        """Forget one broker id; nothing happens for an unknown one."""
        self._live.pop(address, None)
        self._filter_servers.pop(address, None)
        self._brokers.get(name, {}).pop(broker_id, None)
        self._drop_if_empty(name)

    def seen(self, address: str, owner: str, now_s: float) -> None:
        """A broker asked whether its version is known: a sign of life, if it is who registered."""
        live = self._live.get(address)
        if live is not None and live.owner == owner:
            live.seen_s = now_s

    def channel_closed(self, channel: int) -> None:
        """Forget the brokers whose newest registration came over this connection."""
        self._channels.discard(channel)
        for address in [address for address, live in self._live.items() if live.channel == channel]:
            self._forget_address(address)

    def expire(self, now_s: float) -> list[tuple[int, str]]:
        """Forget the brokers that were silent too long; return (channel, address) of each."""
        gone = [(live.channel, at) for at, live in self._live.items() if live.seen_s + live.expiry_s < now_s]
        for _, address in gone:
            self._forget_address(address)
        return gone

    # administration

    def wipe_write(self, broker_name: str) -> int:
        """Take the write permission from every topic of a broker, until it registers a change; return how many."""
        return self._set_perms(broker_name, lambda perm: perm & ~WRITE)

    def add_write(self, broker_name: str) -> int:
        """Set read and write on every topic of a broker, which drops an inherit bit; return how many."""
        return self._set_perms(broker_name, lambda perm: READ | WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster, until they register a change."""
        names = self._names_with(topic) if cluster is None else self.clusters().get(cluster, [])
        for name in names:
            self._queues.get(topic, {}).pop(name, None)
            if name == self._own.name and self._own.topic(topic) is not None:
                self._own_overlay().deleted.add(topic)
        if not self._queues.get(topic, True):
            del self._queues[topic]

    # inside

    def _own_overlay(self) -> _Overlay:
        version = self._own.version()
        if version != self._overlay.version:
            self._overlay = _Overlay(version)
        return self._overlay

    def _laid_over(self, topic: str, row: BrokerQueues) -> BrokerQueues | None:
        overlay = self._own_overlay()
        if topic in overlay.deleted:
            return None
        perm = overlay.perms.get(topic)
        return row if perm is None else row._replace(perm=perm)

    def _queue_rows(self, topic: str) -> dict[str, BrokerQueues]:
        rows = dict(self._queues.get(topic, {}))
        own = self._own.topic(topic)
        if own and (seen := self._laid_over(topic, own)):
            rows = {self._own.name: seen, **rows}
        return rows

    def _all_rows(self) -> dict[str, dict[str, BrokerQueues]]:
        table: dict[str, dict[str, BrokerQueues]] = {}
        for topic, row in self._own.topics():
            if topic not in HIDDEN_TOPICS and (seen := self._laid_over(topic, row)):
                table[topic] = {self._own.name: seen}
        for topic, rows in self._queues.items():
            if topic not in HIDDEN_TOPICS:
                table.setdefault(topic, {}).update(rows)
        return table

    def _broker(self, name: str, asked_at: str) -> BrokerRow | None:
        addresses = self._brokers.get(name, {})
        if name == self._own.name:
            return BrokerRow(self._own.cluster, name, {**self._own.addresses(asked_at), **addresses})
        return BrokerRow(self._cluster_of[name], name, dict(addresses)) if addresses else None

    def _names_with(self, topic: str) -> list[str]:
        return [self._own.name, *(name for name in self._queues.get(topic, {}) if name != self._own.name)]

    def _knows_all(self, name: str, topics: Mapping[str, BrokerQueues]) -> bool:
        return all(name in self._queues.get(topic, {}) for topic in topics)

    def _take_filter_servers(self, told: Registration) -> None:
        if told.filter_servers:
            self._filter_servers[told.address] = told.filter_servers
        elif told.filter_servers is not None:
            self._filter_servers.pop(told.address, None)

    def _set_perms(self, broker_name: str, changed: Callable[[int], int]) -> int:
        count = 0
        for rows in self._queues.values():
            if row := rows.get(broker_name):
                rows[broker_name] = row._replace(perm=changed(row.perm))
                count += 1
        if broker_name == self._own.name:
            overlay = self._own_overlay()
            for topic, row in self._own.topics():
                overlay.perms[topic] = changed(overlay.perms.get(topic, row.perm))
                count += 1
        return count

    def _forget_address(self, address: str) -> None:
        self._live.pop(address, None)
        self._filter_servers.pop(address, None)
        for name, addresses in list(self._brokers.items()):
            for broker_id in [i for i, known in addresses.items() if known == address]:
                del addresses[broker_id]
            self._drop_if_empty(name)

    def _drop_if_empty(self, name: str) -> None:
        if self._brokers.get(name, True):
            return
        del self._brokers[name]
        self._cluster_of.pop(name, None)
        for cluster in [c for c, names in self._clusters.items() if name in names]:
            del self._clusters[cluster][name]
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        for topic in [t for t, rows in self._queues.items() if name in rows]:
            del self._queues[topic][name]
            if not self._queues[topic]:
                del self._queues[topic]
