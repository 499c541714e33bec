"""Every setting of a box: one class per table of the file, each key with its default, rule and meaning."""

from collections.abc import Mapping
from types import MappingProxyType

from appliance.configuration.config_rules import (
    Choice,
    Flag,
    Many,
    Network,
    Real,
    Record,
    Rule,
    Section,
    Text,
    Whole,
    key,
)
from appliance.configuration.group_settings import GroupSection
from storage_driver.named_tuple import NamedTuple

PORT = Whole(0, 65535)
ADDRESS = Text(r"[0-9A-Za-z.:\-_%\[\]]{1,255}", "an address or host name")
HOST_PORT = Text(r"|\[?[0-9A-Za-z.:\-_%]+\]?:\d{1,5}", '"host:port"')
TOPIC_PATTERN = Text(r"[%|a-zA-Z0-9_*?-]{1,127}", "a topic name, * and ? allowed")
ALONE, MASTER_ROLE, SLAVE_ROLE, MEMBER_ROLE = "alone", "master", "slave", "member"
TOPIC_NAME = Text(r"[%|a-zA-Z0-9_-]{1,127}", "a topic name")


class BoxSection(Section):
    """Identity of the box."""

    name: str = key(
        "", Text(r"|[a-z0-9-]{1,40}", "1 to 40 of a-z 0-9 -"), "broker name; empty: serial number or host name"
    )
    cluster: str = key("DefaultCluster", Text(r"[%|a-zA-Z0-9_-]{1,100}", "1 to 100 of A-Z a-z 0-9 _ -"), "cluster name")
    site: str = key("", Text(), "location of the box, free text")


class ListenSection(Section):
    """Addresses and ports for clients."""

    host: str = key("127.0.0.1", ADDRESS, 'address to bind; "0.0.0.0" or "::" opens the box to the network')
    broker_port: int = key(10911, PORT, "port of the broker; 0: any free port")
    namesrv_port: int = key(9876, PORT, "port of the name server; 0: any free port")
    vip: bool = key(
        False, Flag(), "the broker also listens on broker_port - 2 (the VIP channel), for all requests except pulls"
    )


class AdvertiseRule(NamedTuple):
    """Who asks from `network` is told `address:port`."""

    network: str
    address: str
    port: int = 0  # 0: the broker's own port


class AdvertiseSection(Section):
    """Addresses in routes, for networks behind NAT."""

    rules: tuple[AdvertiseRule, ...] = key(
        (),
        Many(
            Record(
                AdvertiseRule,
                {"from": Network(), "address": ADDRESS, "port": PORT},
                needed=frozenset({"from", "address"}),
                attributes={"from": "network"},
            )
        ),
        "address and port that routes name to clients of a network; the first match wins",
    )


class AccessSection(Section):
    """Access control."""

    mode: str = key(
        "subnet",
        Choice(("subnet", "keys", "open")),
        "clients that have access: those in the box's own subnets, those with keys, or all",
    )
    allow: tuple[str, ...] = key((), Many(Network()), "additional client networks in mode subnet")
    admin: str = key("loopback", Choice(("loopback", "subnet", "keys")), "who may change topics, groups and offsets")
    replay: str = key(
        "address", Choice(("address", "strict", "off")), "scope in which a repeated signed request is refused"
    )
    accounts: str = key("", Text(r"(?s).{0,1000}", "a file"), "keys; empty: access/accounts.json in the data folder")


class TlsSection(Section):
    """Encrypted connections of clients."""

    mode: str = key("permissive", Choice(("permissive", "enforcing", "disabled")), "TLS on the two ports")
    cert: str = key("", Text(r"(?s).{0,1000}", "a file"), "certificate chain in PEM; empty: the box's own, tls/box.crt")
    private_key: str = key(
        "", Text(r"(?s).{0,1000}", "a file"), "private key of the certificate; empty: tls/box.key in the data folder"
    )
    passphrase_file: str = key(
        "", Text(r"(?s).{0,1000}", "a file"), "file with the passphrase of an encrypted private key"
    )
    client_auth: str = key(
        "none",
        Choice(("none", "optional", "require")),
        "whether clients present certificates; programs on the box need none",
    )
    trust: str = key("", Text(r"(?s).{0,1000}", "a file"), "CA of client certificates")


class LimitsSection(Section):
    """Limits per client and in total."""

    connections: int = key(1024, Whole(8, 65536), "total connections")
    connections_per_address: int = key(128, Whole(1, 65536), "connections of one address, except loopback")
    connects_per_s: int = key(50, Whole(1, 100_000), "new connections per second of one address")
    connects_burst: int = key(200, Whole(1, 100_000), "new connections of one address at once")
    first_frame_s: int = key(10, Whole(1, 600), "time for the first frame of a connection, from its first byte")
    frame_mib: int = key(16, Whole(1, 64), "largest frame")
    message_mib: int = key(4, Whole(1, 16), "largest message body")
    header_kib: int = key(256, Whole(4, 1024), "largest frame header")
    header_fields: int = key(256, Whole(16, 4096), "most header fields")
    requests_in_flight: int = key(2048, Whole(1, 65536), "unanswered requests of one connection")
    bytes_in_flight_mib: int = key(32, Whole(4, 4096), "total request bytes not yet durable")
    unsent_mib: int = key(8, Whole(1, 1024), "reply bytes one connection may leave unread")
    unsent_s: int = key(30, Whole(1, 600), "time without progress on unread replies, then the connection is closed")
    parked_pulls: int = key(10_000, Whole(0, 1_000_000), "long polls waiting for messages")
    topics: int = key(10_000, Whole(32, 100_000), "topics")
    groups: int = key(10_000, Whole(32, 100_000), "consumer groups")
    created_per_hour: int = key(
        1000,
        Whole(1, 100_000),
        "topics and groups that one address creates automatically per hour, by sending and consuming",
    )
    clients: int = key(4096, Whole(8, 65536), "client ids")
    idle_s: int = key(120, Whole(1, 86_400), "idle time after which a connection is closed")


class RetentionOf(NamedTuple):
    """Topics that are kept for another time than the rest; a name may hold * and ?."""

    topics: tuple[str, ...]
    retention_h: int


class StoreSection(Section):
    """The log on the disk."""

    segment_mib: int = key(0, Whole(0, 1024), "size of a CommitLog segment; 0: 256 on disks below 64 GiB, else 1024")
    queues_default: int = key(8, Whole(1, 64), "queues of a topic that is created automatically")
    quota_gib: int = key(
        0,
        Whole(0, 1 << 20),
        "log size above which the oldest segments are deleted, but never unshipped ones; 0: no quota",
    )
    retention_h: int = key(72, Whole(1, 8760), "age at which segments are deleted")
    classes: tuple[RetentionOf, ...] = key(
        (),
        Many(
            Record(
                RetentionOf,
                {"topics": Many(TOPIC_PATTERN), "retention_h": Whole(1, 8760)},
                needed=frozenset({"topics", "retention_h"}),
            )
        ),
        "retention of single topics; the first match wins, and a segment stays as long as its longest topic",
    )
    zero_ahead: bool = key(False, Flag(), "write zeros ahead of large batches too: faster syncs, twice the wear")
    group_commit_ms: float = key(0.0, Real(0, 50), "time to gather records before a sync")


class BrokerSection(Section):
    """Broker behaviour, as in Apache's broker.conf."""

    auto_create_topics: bool = key(True, Flag(), "a send to an unknown topic creates it")
    auto_create_groups: bool = key(True, Flag(), "an unknown consumer group is created")
    permission: int = key(6, Whole(0, 6), "broker-wide permission: 4 read, 2 write, 6 both")
    property_filter: bool = key(True, Flag(), "SQL92 filters")
    pull_messages: int = key(
        32, Whole(1, 1024), "messages of one pull at most, 256 KiB together; Apache's maxTransferCountOnMessageInMemory"
    )
    long_poll: bool = key(True, Flag(), "hold pulls until a message arrives")
    notify_members: bool = key(True, Flag(), "tell consumers at once when their group changes")
    reject_transactions: bool = key(False, Flag(), "refuse half messages")
    transaction_timeout_s: int = key(6, Whole(1, 86_400), "age of a half message at its first check")
    transaction_check_s: int = key(60, Whole(1, 86_400), "time between checks of a half message")
    transaction_checks: int = key(15, Whole(1, 1000), "checks after which a half message is set aside")
    delay_levels: str = key(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        Text(r"\d+[smhd]( \d+[smhd])*", 'blank-separated delays such as "1s 5s 1m"'),
        "delay of each level",
    )
    timer_days: int = key(3, Whole(1, 365), "longest arbitrary delay")
    trace_topic: bool = key(True, Flag(), "create RMQ_SYS_TRACE_TOPIC")
    region: str = key("DefaultRegion", Text(r"[\w-]{1,100}", "a word"), "MSG_REGION of replies and messages")
    trace_on: bool = key(True, Flag(), "TRACE_ON of replies and messages")
    dedup_s: int = key(0, Whole(0, 86_400), "dedup window of every topic; 0: while the first reply is unwritten")
    dedup_topics: tuple[str, ...] = key((), Many(TOPIC_NAME, 1000), "topics whose window is dedup_topics_s")
    dedup_topics_s: int = key(600, Whole(1, 86_400), "dedup window of dedup_topics")
    dedup_entries: int = key(65_536, Whole(0, 4_000_000), "send keys remembered")


class GrpcSection(Section):
    """RocketMQ 5 clients over gRPC."""

    port: int = key(0, PORT, "port for RocketMQ 5 clients that speak gRPC, 8081 by custom; 0: off")
    min_invisible_ms: int = key(10_000, Whole(1, 60_000), "shortest invisible time that a simple consumer may ask for")
    min_poll_ms: int = key(5000, Whole(0, 20_000), "shortest time that a receive waits for its first message")


class NamesrvSection(Section):
    """The name server beside the broker."""

    register_at: tuple[str, ...] = key((), Many(HOST_PORT), "other name servers at which this box registers")
    register_s: int = key(30, Whole(10, 60), "time between registrations")
    order_messages: bool = key(False, Flag(), "routes carry the order configuration")


class ReplicationSection(Section):
    """Copies of the log on other brokers, as Apache's HA service makes them."""

    role: str = key(
        ALONE,
        Choice((ALONE, MASTER_ROLE, SLAVE_ROLE, MEMBER_ROLE)),
        "master: slaves fetch the log at `port`, the VIP channel is open too; slave: copies the log of `master`; "
        "member: of a group of boxes, see [group]",
    )
    port: int = key(0, PORT, "port at which slaves fetch the log; 0: broker_port + 1")
    slaves: tuple[str, ...] = key((), Many(Network()), "networks of slaves, beside this machine; they read every topic")
    most_slaves: int = key(4, Whole(1, 16), "slaves at a time")
    slave_reads: bool = key(
        False,
        Flag(),
        "consumers that are so far behind that their reads wait for the disk are told to read from a slave",
    )
    master: str = key("", HOST_PORT, "the master of a slave: the address of its broker port")
    broker_id: int = key(1, Whole(1, 1_000_000), "broker id of a slave")


class WatchdogSection(Section):
    """Supervision of the process."""

    proof_limit_s: int = key(15, Whole(5, 60), "greatest age of the proof of work with which systemd's watchdog is fed")


class ConditionsSection(Section):
    """When the box counts as degraded."""

    group_gone_s: int = key(
        600, Whole(1, 604_800), "a consumer group that had members and has none for longer has died"
    )
    group_behind_s: int = key(
        600,
        Whole(1, 604_800),
        "a group whose oldest message waits for longer, and whose lag does not shrink, is behind",
    )


class UpdateSection(Section):
    """New versions."""

    tries: int = key(3, Whole(2, 10), "failed starts of a new version before it is rolled back")


class MetricsSection(Section):
    """Metrics for Prometheus."""

    port: int = key(0, PORT, "TCP port for Prometheus; 0: unix socket only")
    host: str = key("127.0.0.1", ADDRESS, "address of that port; other machines need the token")


class PageSection(Section):
    """The status page."""

    port: int = key(0, PORT, "port of the status page; 0: off")
    host: str = key("127.0.0.1", ADDRESS, "address of the status page; other machines need the token")
    names: tuple[str, ...] = key(
        (), Many(Text(r"[0-9a-z.-]{1,253}", "a host name")), "additional host names of the page in browsers"
    )


class UplinkWindow(NamedTuple):
    """In `hours` of `days` the cap is `kbit_s`."""

    days: str
    hours: str
    kbit_s: int = 0


class MeteredLinks(NamedTuple):
    """Links that cost: their interfaces, the monthly budget, and whether the backlog may use them."""

    interfaces: tuple[str, ...] = ()
    month_mbytes: int = 0
    backlog: bool = False


NOT_METERED = MeteredLinks()
_DAY = "(?:mon|tue|wed|thu|fri|sat|sun)"
_WINDOW = Record(
    UplinkWindow,
    {
        "days": Text(rf"{_DAY}(-{_DAY})?(,{_DAY}(-{_DAY})?)*", 'days such as "mon-fri"'),
        "hours": Text(r"\d\d:\d\d-\d\d:\d\d", 'hours such as "07:00-19:00"'),
        "kbit_s": Whole(0, 100_000_000),
    },
    needed=frozenset({"days", "hours"}),
)
_METERED = Record(
    MeteredLinks,
    {
        "interfaces": Many(Text(r"[\w.@*-]{1,32}", "a network interface")),
        "month_mbytes": Whole(0, 1 << 40),
        "backlog": Flag(),
    },
)


class UplinkSection(Section):
    """Shipping to the centre."""

    gateway: str = key("", HOST_PORT, "central gateway; empty: no uplink")
    certs: str = key("", Text(r"(?s).{0,1000}", "a folder"), "folder with box.crt, box.key, ca.crt")
    max_delay_s: float = key(10.0, Real(0.01, 86_400), "longest wait before a piece is shipped")
    piece_bytes: int = key(4_194_304, Whole(4096, 4 << 20), "largest piece, before compression")
    order: str = key("live_first", Choice(("live_first", "oldest_first")), "order after an interruption of the uplink")
    backlog_share: float = key(0.3, Real(0, 1), "share of the bandwidth for the backlog")
    kbit_s: int = key(0, Whole(0, 100_000_000), "bandwidth limit; 0: none")
    codec: str = key("auto", Choice(("auto", "zstd", "zlib", "none")), "compression")
    express: tuple[str, ...] = key((), Many(TOPIC_NAME, 1000), "topics that are shipped before all others")
    express_max_delay_s: float = key(1.0, Real(0.01, 3600), "longest wait of express topics")
    when_full: str = key(
        "drop_oldest", Choice(("drop_oldest", "reject_new", "express_only")), "policy when the disk is full"
    )
    max_lag_bytes: int = key(0, Whole(0, 1 << 50), "most unshipped bytes, then when_full; 0: 60 % of the partition")
    max_lag_hours: int = key(0, Whole(0, 87_600), "oldest backlog; 0: no limit")
    windows: tuple[UplinkWindow, ...] = key((), Many(_WINDOW), "weekly time windows with their own bandwidth limit")
    metered: MeteredLinks = key(
        NOT_METERED, _METERED, "metered links: interfaces, monthly budget in megabytes, whether the backlog uses them"
    )


class Config(NamedTuple):
    """All settings of a box; a part is handed its own table only."""

    box: BoxSection = BoxSection()
    listen: ListenSection = ListenSection()
    advertise: AdvertiseSection = AdvertiseSection()
    access: AccessSection = AccessSection()
    tls: TlsSection = TlsSection()
    limits: LimitsSection = LimitsSection()
    store: StoreSection = StoreSection()
    broker: BrokerSection = BrokerSection()
    grpc: GrpcSection = GrpcSection()
    namesrv: NamesrvSection = NamesrvSection()
    replication: ReplicationSection = ReplicationSection()
    group: GroupSection = GroupSection()
    watchdog: WatchdogSection = WatchdogSection()
    conditions: ConditionsSection = ConditionsSection()
    update: UpdateSection = UpdateSection()
    metrics: MetricsSection = MetricsSection()
    page: PageSection = PageSection()
    uplink: UplinkSection = UplinkSection()
    origins: Mapping[str, str] = MappingProxyType({})  # "table.key" -> where its value came from


def tables() -> dict[str, type[Section]]:
    """Return table name -> its class, in the order of the documentation."""
    return {name: type(default) for name, default in Config._field_defaults.items() if name != "origins"}


def rules() -> dict[str, Rule]:
    """Return "table.key" -> rule for every key there is."""
    return {f"{name}.{each}": key.rule for name, kind in tables().items() for each, key in kind.keys.items()}
