"""Every metric the box has: name, kind, meaning, labels, how many series at most. The documentation is made of this.

Names of RocketMQ 5's brokers where the meaning is the same, `rocketbox_` where it is ours.
"""

from storage_driver.named_tuple import NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
MOST_TOPICS, MOST_PAIRS, MOST_GROUPS, MOST_CODES = 200, 500, 200, 200
NODE = ("cluster", "node_type", "node_id")
TOPIC = (*NODE, "topic", "is_system")
PAIR = (*NODE, "topic", "consumer_group", "is_retry", "is_system")
STORAGE = (*NODE, "storage_type", "storage_medium")
CLIENT = (*NODE, "language", "version", "protocol_type")


class Family(NamedTuple):
    """One metric; `most` is how many series of it there can be."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()
    most: int = 1


BROKER = (
    Family("rocketmq_broker_permission", GAUGE, "Broker-wide permission: 4 read, 2 write, 6 both.", NODE),
    Family("rocketmq_topic_number", GAUGE, "Topics, system topics included.", NODE),
    Family("rocketmq_consumer_group_number", GAUGE, "Consumer groups the broker knows.", NODE),
    Family("rocketmq_messages_in_total", COUNTER, "Messages stored, by topic.", TOPIC, MOST_TOPICS),
    Family("rocketmq_throughput_in_total", COUNTER, "Bytes of those messages.", TOPIC, MOST_TOPICS),
    Family("rocketmq_messages_out_total", COUNTER, "Messages delivered to consumers.", PAIR, MOST_PAIRS),
    Family("rocketmq_throughput_out_total", COUNTER, "Bytes of those messages.", PAIR, MOST_PAIRS),
    Family("rocketmq_consumer_lag_messages", GAUGE, "Messages a group has not acknowledged yet.", PAIR, MOST_PAIRS),
    Family(
        "rocketmq_consumer_lag_latency_milliseconds",
        GAUGE,
        "Age of the oldest message a group has not acknowledged; absent if that message is no longer on disk.",
        PAIR,
        MOST_PAIRS,
    ),
    Family(
        "rocketmq_send_to_dlq_messages_total",
        COUNTER,
        "Messages moved to the group's dead letter topic, over all starts.",
        (*NODE, "consumer_group"),
        MOST_GROUPS,
    ),
    Family("rocketmq_producer_connections", GAUGE, "Connections of producers.", CLIENT, 50),
    Family(
        "rocketmq_consumer_connections",
        GAUGE,
        "Connections of consumers.",
        (*CLIENT, "consumer_group", "consume_mode"),
        MOST_PAIRS,
    ),
    Family("rocketmq_storage_size_bytes", GAUGE, "Bytes of the CommitLog on disk.", STORAGE),
    Family("rocketmq_storage_flush_behind_bytes", GAUGE, "Bytes appended and not yet synced.", STORAGE),
    Family("rocketmq_storage_dispatch_behind_bytes", GAUGE, "Durable bytes not yet in queues on disk.", STORAGE),
    Family("rocketmq_storage_message_reserve_time_milliseconds", GAUGE, "Age of the oldest message on disk.", STORAGE),
)
STORE = (
    Family("rocketbox_sync_seconds", HISTOGRAM, "Duration of the log's syncs to disk.", (), 22),
    Family("rocketbox_stored_messages_total", COUNTER, "Messages made durable since the start."),
    Family("rocketbox_stored_bytes_total", COUNTER, "Bytes of the log made durable since the start."),
    Family("rocketbox_messages_per_sync", GAUGE, "Messages that shared one sync, average since the start."),
    Family(
        "rocketbox_disk_written_bytes_total", COUNTER, "Bytes written to disks for this process, as the kernel counts."
    ),
    Family("rocketbox_written_per_ingested_ratio", GAUGE, "Bytes written to disks per byte ingested, since the start."),
    Family(
        "rocketbox_flash_wear_ratio",
        GAUGE,
        "Used share of the disk's rated writes, as the disk reports; absent if the disk does not report it.",
    ),
    Family("rocketbox_disk_used_ratio", GAUGE, "Share of the store's file system in use, as df counts."),
    Family(
        "rocketbox_disk_full_in_seconds",
        GAUGE,
        "Time until the disk is full at the rate of the last hour; absent while it does not fill.",
    ),
    Family("rocketbox_log_first_offset_bytes", GAUGE, "Log offset of the oldest byte on disk."),
    Family("rocketbox_log_durable_offset_bytes", GAUGE, "Log offset below which everything is synced."),
    Family("rocketbox_appends_refused", GAUGE, "1 while messages are refused because the disk is full or failed."),
    Family("rocketbox_queues", GAUGE, "Queues in use."),
    Family("rocketbox_cold_reads_total", COUNTER, "Reads that had to wait for the disk."),
    Family("rocketbox_deleted_segments_total", COUNTER, "CommitLog files deleted by retention."),
    Family("rocketbox_damaged_ranges", GAUGE, "Ranges the scrub found damaged."),
    Family("rocketbox_scrubbed_bytes_total", COUNTER, "Bytes the scrub has read and compared."),
    Family("rocketbox_lost_messages", GAUGE, "Lost acknowledged messages, until an operator acknowledges the loss."),
    Family("rocketbox_recovery_seconds", GAUGE, "Duration of the recovery at this start.", ("verdict",), 1),
)
WAITING = (
    Family("rocketbox_delayed_messages", GAUGE, "Messages that wait in a delay level.", ("level",), 64),
    Family("rocketbox_timed_messages", GAUGE, "Messages that wait for their own delivery time."),
    Family("rocketbox_half_messages", GAUGE, "Half messages since the oldest open transaction."),
    Family("rocketbox_parked_pulls", GAUGE, "Long polls that wait for messages."),
    Family("rocketbox_pop_in_flight_messages", GAUGE, "Messages taken by POP and not acknowledged."),
    Family("rocketbox_pop_waiting_receivers", GAUGE, "POP receivers that wait for messages."),
    Family("rocketbox_pop_redelivered_total", COUNTER, "Messages whose invisible time ended, stored again."),
    Family("rocketbox_pop_gone_total", COUNTER, "Messages that retention deleted while POP had them in flight."),
    Family("rocketbox_pop_journal_bytes", GAUGE, "Bytes in use of the journal of POP."),
    Family("rocketbox_pop_journal_syncs_total", COUNTER, "Syncs of the journal of POP."),
)
NETWORK = (
    Family("rocketbox_connections", GAUGE, "Open connections on both ports."),
    Family("rocketbox_connection_events_total", COUNTER, "Connections accepted, closed and evicted.", ("event",), 20),
    Family(
        "rocketbox_connections_refused_total",
        COUNTER,
        "Connections closed at accept: `access`, `process` (short of memory or descriptors), or the limit.",
        ("reason",),
        8,
    ),
    Family(
        "rocketbox_network_bytes_total",
        COUNTER,
        "Bytes of frames; those sent are counted when their connection ends.",
        ("direction",),
        2,
    ),
    Family("rocketbox_bytes_in_flight", GAUGE, "Bytes of requests whose answers are pending."),
    Family(
        "rocketbox_readers_paused",
        GAUGE,
        "1 while too many bytes are in flight: who has much of it is not read.",
    ),
    Family("rocketbox_requests_total", COUNTER, "Requests, by code or method.", ("port", "request"), MOST_CODES),
    Family(
        "rocketbox_refusals_total",
        COUNTER,
        "Requests refused, by request and response code; of gRPC by method and status.",
        ("port", "request", "response"),
        MOST_CODES,
    ),
    Family(
        "rocketbox_requests_denied_total",
        COUNTER,
        "Requests that access control denied, by class: data, read, change, join, accounts, never.",
        ("port", "class"),
        18,
    ),
    Family("rocketbox_tls_expiry_seconds", GAUGE, "Time until the certificate in use expires; absent without TLS."),
    Family("rocketbox_tls_files_refused", GAUGE, "1 while the certificate files on disk cannot be used."),
    Family("rocketbox_unknown_requests_total", COUNTER, "Requests with an unknown code or method.", ("port",), 4),
    Family("rocketbox_request_faults_total", COUNTER, "Requests that failed with an internal error.", ("port",), 4),
)
HEALTH = (
    Family(
        "rocketbox_slot_info", GAUGE, "Always 1; the running version and its slot.", ("slot", "version", "committed"), 1
    ),
    Family("rocketbox_health_state", GAUGE, "1 for the current state.", ("state",), 6),
    Family("rocketbox_health_reasons", GAUGE, "Reasons why the state is not ok, by doctor code.", ("code",), 50),
    Family(
        "rocketbox_condition",
        GAUGE,
        "1 while a condition of docs/operate.md holds and is not muted; every condition has its series.",
        ("id", "code"),
        50,
    ),
    Family("rocketbox_conditions_muted", GAUGE, "Conditions that hold and are muted."),
    Family("rocketbox_boot_number", GAUGE, "Number of the current boot, counted by the box."),
    Family("rocketbox_boot_info", GAUGE, "Always 1; reason of the last boot.", ("reason",), 1),
    Family("rocketbox_boots_total", COUNTER, "Boots of the machine, by reason.", ("reason",), 12),
    Family(
        "rocketbox_restarts_total",
        COUNTER,
        "Exits of the service, by systemd's `SERVICE_RESULT`.",
        ("reason",),
        12,
    ),
    Family(
        "rocketbox_update_total",
        COUNTER,
        "Versions this box has tried, by result: `committed` or `rolled_back`.",
        ("result",),
        2,
    ),
    Family("rocketbox_proof_age_seconds", GAUGE, "Age of the newest proof of work.", ("evidence",), 4),
    Family("rocketbox_proof_fed_total", COUNTER, "Times systemd's watchdog was fed."),
    Family(
        "rocketbox_proof_starved_total",
        COUNTER,
        "Times systemd's watchdog was not fed because proof of work was missing.",
    ),
    Family("rocketbox_loop_lateness_seconds", GAUGE, "Delay of the event loop at the last measurement."),
    Family("rocketbox_clock_trusted", GAUGE, "1 while the kernel's clock is synchronised."),
)
UPLINK = (
    Family("rocketbox_uplink_connected", GAUGE, "1 while the gateway is connected."),
    Family("rocketbox_uplink_paused", GAUGE, "1 while shipping is paused by hand."),
    Family("rocketbox_uplink_gateway_full", GAUGE, "1 while the gateway accepts no data."),
    Family("rocketbox_uplink_unshipped_bytes", GAUGE, "Durable bytes without a receipt."),
    Family("rocketbox_uplink_backlog_bytes", GAUGE, "Unshipped bytes that belong to the backlog."),
    Family("rocketbox_uplink_oldest_unshipped_seconds", GAUGE, "Age of the oldest message without a receipt."),
    Family("rocketbox_uplink_durable_bytes", GAUGE, "Log offset below which everything is committed."),
    Family("rocketbox_uplink_receipted_bytes", GAUGE, "Bytes with a durable receipt, over all starts."),
    Family("rocketbox_uplink_raw_bytes_total", COUNTER, "Bytes shipped, before compression."),
    Family("rocketbox_uplink_wire_bytes_total", COUNTER, "Bytes on the wire."),
    Family("rocketbox_uplink_repeat_bytes_total", COUNTER, "Bytes sent again although the gateway had them."),
    Family("rocketbox_uplink_month_wire_bytes", GAUGE, "Bytes on metered links this month."),
    Family("rocketbox_uplink_rate_bytes", GAUGE, "Bandwidth limit in force, bytes per second; 0: none."),
    Family("rocketbox_uplink_eta_seconds", GAUGE, "Time until the backlog is shipped at this rate; -1: never."),
    Family("rocketbox_uplink_quota_seconds_left", GAUGE, "Time until unshipped bytes reach the quota; absent: never."),
    Family("rocketbox_uplink_certificate_expiry_seconds", GAUGE, "Time until the certificate for the gateway expires."),
    Family("rocketbox_uplink_connects_total", COUNTER, "Connections to the gateway."),
    Family("rocketbox_uplink_connection_errors_total", COUNTER, "Failed connections.", ("cause",), 20),
    Family("rocketbox_uplink_pieces_total", COUNTER, "Pieces sent.", ("kind",), 6),
    Family("rocketbox_uplink_refused_total", COUNTER, "Pieces the gateway refused.", ("code",), 20),
    Family("rocketbox_uplink_gaps_declared_total", COUNTER, "Gaps declared.", ("class",), 10),
    Family("rocketbox_uplink_gap_bytes_total", COUNTER, "Bytes of those gaps.", ("class",), 10),
    Family("rocketbox_uplink_gaps_undelivered", GAUGE, "Gaps the gateway has not acknowledged yet."),
    Family("rocketbox_uplink_alarm", GAUGE, "1 for each alarm that is on.", ("name",), 20),
)
REPLICATION = (
    Family("rocketbox_replication_slaves", GAUGE, "At a master, or a member of a group, slaves that are connected."),
    Family(
        "rocketbox_replication_lag_bytes",
        GAUGE,
        "Bytes a slave is behind: at the master the one furthest behind, by its reports; absent while unknown.",
    ),
    Family(
        "rocketbox_replication_slave_reported_bytes",
        GAUGE,
        "Log offset up to which a slave says that it has the log; a stock slave means its memory, not its disk.",
        ("slave",),
        64,
    ),
    Family(
        "rocketbox_replication_slave_lag_bytes",
        GAUGE,
        "Bytes a slave is behind, by its reports.",
        ("slave",),
        64,
    ),
    Family("rocketbox_replication_connected", GAUGE, "At a slave, 1 while the master is connected."),
    Family("rocketbox_replication_differs", GAUGE, "At a slave, 1 while its log is not the beginning of its master's."),
    Family("rocketbox_replication_connections_total", COUNTER, "Connections of slaves, or to the master."),
    Family("rocketbox_replication_received_bytes_total", COUNTER, "Bytes received from the master."),
    Family("rocketbox_replication_sent_bytes_total", COUNTER, "Bytes sent to slaves."),
    Family("rocketbox_replication_leader", GAUGE, "At a member of a group, 1 while it leads and takes messages."),
    Family("rocketbox_replication_term", GAUGE, "At a member of a group, the term it knows."),
    Family(
        "rocketbox_replication_member_connected",
        GAUGE,
        "At a member of a group, 1 while another member is connected.",
        ("member",),
        3,
    ),
    Family(
        "rocketbox_replication_member_lag_bytes",
        GAUGE,
        "At a leader, bytes that another box of its group is behind; absent until it is heard in a term.",
        ("member",),
        3,
    ),
    Family(
        "rocketbox_replication_member_lag_seconds",
        GAUGE,
        "At a leader, age of the oldest byte that another box has not; absent until it is heard in a term.",
        ("member",),
        3,
    ),
    Family(
        "rocketbox_replication_links_refused_total",
        COUNTER,
        "At a member of a group, connections to its port that were refused or have ended, by reason.",
        ("reason",),
        14,
    ),
    Family(
        "rocketbox_replication_refused_total",
        COUNTER,
        "Connections of slaves that were refused or ended by the box, by reason.",
        ("reason",),
        9,
    ),
)
PROCESS = (
    Family("process_virtual_memory_bytes", GAUGE, "Virtual memory."),
    Family("process_resident_memory_bytes", GAUGE, "Resident memory."),
    Family("process_start_time_seconds", GAUGE, "Start of the process, seconds since 1970."),
    Family("process_cpu_seconds_total", COUNTER, "Processor time, user and system."),
    Family("process_open_fds", GAUGE, "Open descriptors."),
    Family("process_max_fds", GAUGE, "Most descriptors the process may have."),
)
OWN = (
    Family("rocketbox_series_left_out", GAUGE, "Topics and groups without series because of the bounds.", ("of",), 3),
    Family("rocketbox_gathering_seconds", GAUGE, "Processor time of the event loop for this scrape."),
)
SECTIONS = {
    "Messages, in RocketMQ 5's names": BROKER,
    "Store and disk": STORE,
    "Waiting messages": WAITING,
    "Network": NETWORK,
    "Health": HEALTH,
    "Uplink (if configured)": UPLINK,
    "Replication (of a master or a slave)": REPLICATION,
    "Process": PROCESS,
    "The metrics themselves": OWN,
}
FAMILIES = {family.name: family for families in SECTIONS.values() for family in families}
