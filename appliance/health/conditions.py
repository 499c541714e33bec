"""What a box may have to say about its health: every condition, its state, its alert; and the order they are told in.

A sans-I/O list. `condition_rules.py` and `group_watch.py` decide which conditions hold; status, doctor, page, metrics,
serial line and centre are told the same ones, the weightiest first.
"""

from collections.abc import Iterable

from storage_driver.named_tuple import NamedTuple

STATES = ("ok", "starting", "degraded", "failing", "read_only", "safe")  # the worst wins
WALKS = "test_real_walks.py::test_each_trouble_is_told_and_raises_its_alert"  # on a real box
TICKET = "RocketboxCondition"  # the alert of conditions that have none of their own


class ConditionKind(NamedTuple):
    """One condition: its name everywhere, doctor's code, the state it puts the box in, when it holds."""

    id: str
    code: str
    state: str
    when: str
    sentence: str  # an example
    test: str
    alert: str = TICKET


CATALOGUE = (
    ConditionKind(
        "read_only",
        "D501",
        "read_only",
        "at once, when the data disk refuses writes",
        "read-only, sends are refused: the disk is write-protected",
        "test_condition_rules.py::test_each_fact_is_one_condition_with_its_numbers",
        "RocketboxNotServing",
    ),
    ConditionKind(
        "log_failed",
        "D501",
        "failing",
        "at once, when a sync of the log fails",
        "the log's disk failed: [Errno 5] Input/output error",
        "test_condition_rules.py::test_each_fact_is_one_condition_with_its_numbers",
        "RocketboxNotServing",
    ),
    ConditionKind(
        "not_durable",
        "D501",
        "failing",
        "after `watchdog.proof_limit_s`",
        "nothing reached the disk for 16 s",
        "test_health.py::test_what_the_watchdog_finds_is_a_condition",
        "RocketboxProofOld",
    ),
    ConditionKind(
        "not_answering",
        "D502",
        "failing",
        "after `watchdog.proof_limit_s`",
        "the box's own ports answered no request for 16 s",
        "test_health.py::test_what_the_watchdog_finds_is_a_condition",
        "RocketboxProofOld",
    ),
    ConditionKind(
        "loop_late",
        "D503",
        "failing",
        "at once, above 5 s",
        "the event loop was 6.2 s late",
        "test_health.py::test_what_the_watchdog_finds_is_a_condition",
        "RocketboxNotServing",
    ),
    ConditionKind(
        "data_lost",
        "D110",
        "degraded",
        "from the start whose recovery found it until `rocketbox loss --acknowledge`",
        "3 messages that were durable are gone",
        f"{WALKS}[damage_between_runs]",
        "RocketboxLoss",
    ),
    ConditionKind(
        "data_given_up",
        "D310",
        "degraded",
        "within 10 s; for 7 days after the newest loss",
        "12 ranges of the log, 1,944 messages, 189 MiB, were dropped before the gateway had them (quota_bytes)",
        f"{WALKS}[full_disk]",
        "RocketboxGaps",
    ),
    ConditionKind(
        "sends_refused",
        "D107",
        "degraded",
        "within 10 s",
        "disk 91% full, sends are refused",
        f"{WALKS}[disk_of_others]",
        "RocketboxRefusesMessages",
    ),
    ConditionKind(
        "data_damaged",
        "D108",
        "degraded",
        "when the scrub, a reader, a shipment or a recovery meets it; what scrub and readers found until "
        "`rocketbox loss --acknowledge`, the rest until the next start",
        "1 damaged range in the log; the scrub has read 2.0 GiB since the start; at least 1 message cannot "
        "be read on this box (orders/0: 1), log offsets 8192 to 9000, 808 bytes: body CRC differs",
        f"{WALKS}[damage_in_a_run]",
        "RocketboxDamage",
    ),
    ConditionKind(
        "memory_short",
        "D504",
        "degraded",
        "at once, above 90 %",
        "memory at 92% of the limit, new connections are refused",
        "test_health.py::test_what_the_watchdog_finds_is_a_condition",
    ),
    ConditionKind(
        "files_short",
        "D505",
        "degraded",
        "at once, above 90 %",
        "open files at 92% of the limit, new connections are refused",
        "test_health.py::test_what_the_watchdog_finds_is_a_condition",
    ),
    ConditionKind(
        "uplink_down",
        "D310",
        "degraded",
        "after 2 minutes without a connection while bytes wait",
        "no connection to the gateway centre:7700 for 4 min, 12 MiB waiting, last error: refused",
        "test_health_walks.py::test_a_full_disk_without_a_gateway_says_what_it_gives_up",
    ),
    ConditionKind(
        "uplink_filling",
        "D310",
        "degraded",
        "within 10 s: unshipped data will reach its limit within 24 h, or has half of it",
        "unshipped data, 300 MiB, reaches the limit of 400 MiB in 3.1 h: then the oldest is dropped",
        f"{WALKS}[full_disk]",
        "RocketboxUplinkQuota",
    ),
    ConditionKind(
        "uplink_late",
        "D310",
        "degraded",
        "when a byte has waited an hour",
        "no receipt for 2.2 h, 412 MiB waiting",
        "test_condition_rules.py::test_each_fact_is_one_condition_with_its_numbers",
        "RocketboxUplinkBehind",
    ),
    ConditionKind(
        "uplink_alarm",
        "D310",
        "degraded",
        "at once",
        "the uplink reports identity: the certificate names box-7",
        "test_condition_rules.py::test_each_fact_is_one_condition_with_its_numbers",
    ),
    ConditionKind(
        "copy_differs",
        "D701",
        "degraded",
        "at once, on a slave; nothing more is copied",
        "this copy ends at 8192, the master's log at 4096: it was cut, or is another one",
        "test_condition_rules.py::test_replication_is_told_on_either_side",
    ),
    ConditionKind(
        "master_lost",
        "D701",
        "degraded",
        "after 2 minutes without a connection, on a slave",
        "no connection to the master 10.1.0.5:10911 for 4 min, last error: refused",
        "test_condition_rules.py::test_replication_is_told_on_either_side",
    ),
    ConditionKind(
        "no_slave",
        "D701",
        "degraded",
        "after 2 minutes without a slave, on a master",
        "no slave for 4 min: this box has the only copy of what came since",
        "test_condition_rules.py::test_replication_is_told_on_either_side",
    ),
    ConditionKind(
        *("no_quorum", "D702", "degraded", "after 10 s, on a member of a group; a leader: 2 s, without a copy at once"),
        "no leader for 40 s: sends are refused",
        "test_member_conditions.py::test_each_trouble_of_a_group_is_one_condition_with_its_numbers",
        "RocketboxNoQuorum",
    ),
    ConditionKind(
        *("diverged", "D703", "degraded", "for a week, on the member that was cut"),
        "4 KiB at 8192 were taken back: this log had what its leader's has not",
        "test_member_conditions.py::test_each_trouble_of_a_group_is_one_condition_with_its_numbers",
    ),
    ConditionKind(
        *("one_copy", "D702", "degraded", "after 2 minutes, where it acknowledges alone at once, on a leader"),
        "no other copy for 4 min: this box has the only one of what came since",
        "test_member_conditions.py::test_each_trouble_of_a_group_is_one_condition_with_its_numbers",
    ),
    ConditionKind(
        *("copy_behind", "D702", "degraded", "after 2 minutes, where it has no space at once, on a leader"),
        "the copy on b is 40 MiB and 65 s behind",
        "test_member_conditions.py::test_each_trouble_of_a_group_is_one_condition_with_its_numbers",
    ),
    ConditionKind(
        *("witness_lost", "D702", "degraded", "after 2 minutes, on a leader"),
        "no connection to the witness w for 4 min: if a box fails now, nobody leads",
        "test_member_conditions.py::test_each_trouble_of_a_group_is_one_condition_with_its_numbers",
    ),
    ConditionKind(
        *("member_clock", "D702", "degraded", "at once"),
        "the clock of b is 12 s behind this one's",
        "test_member_conditions.py::test_each_trouble_of_a_group_is_one_condition_with_its_numbers",
    ),
    ConditionKind(
        "quota_exceeded",
        "D107",
        "degraded",
        "within 10 s",
        "the log holds 1.8 GiB, store.quota_gib allows 1.0 GiB: 1.7 GiB are unshipped and stay",
        "test_condition_rules.py::test_a_quota_that_does_not_bind_says_why",
    ),
    ConditionKind(
        "disk_filling",
        "D107",
        "degraded",
        "within 10 s, above 85 %",
        "disk 87% full, old segments are deleted, full in 3 h",
        "test_condition_rules.py::test_the_disk_names_the_setting_that_helps_for_its_cause",
        "RocketboxDiskFilling",
    ),
    ConditionKind(
        "group_without_member",
        "D601",
        "degraded",
        "`conditions.group_gone_s` (10 minutes) after a group that had members lost the last one, or after a start, "
        "while messages wait for it",
        "the consumer group billing has had no member for 12 min, up to 4,210 messages wait for it",
        f"{WALKS}[killed_consumer]",
        "RocketboxConsumerStuck",
    ),
    ConditionKind(
        "group_behind",
        "D602",
        "degraded",
        "`conditions.group_behind_s` (10 minutes) in which a group had messages older than that and its lag did not "
        "shrink",
        "the consumer group billing is 14 min behind on orders, 4,210 messages, and does not catch up",
        f"{WALKS}[stuck_consumer]",
        "RocketboxConsumerStuck",
    ),
    ConditionKind(
        "dead_letters",
        "D603",
        "degraded",
        "within 30 s, while the dead letter topic holds messages that no group has read and that were not resent",
        "12 messages of the consumer group billing are dead letters",
        f"{WALKS}[dead_letters]",
        "RocketboxDeadLetters",
    ),
    ConditionKind(
        "certificate_ends",
        "D303",
        "degraded",
        "30 days before it expires, by a synchronised clock",
        "the TLS certificate has expired",
        f"{WALKS}[expired_certificate]",
        "RocketboxCertificateEnds",
    ),
    ConditionKind(
        "certificate_refused",
        "D303",
        "degraded",
        "within 40 s of a change of the files",
        "new TLS files are not in use: key and certificate do not match",
        "test_condition_rules.py::test_each_fact_is_one_condition_with_its_numbers",
        "RocketboxCertificateEnds",
    ),
    ConditionKind(
        "uplink_certificate_ends",
        "D303",
        "degraded",
        "30 days before it expires, by a synchronised clock",
        "the certificate for the gateway expires in 12 days",
        "test_condition_rules.py::test_each_fact_is_one_condition_with_its_numbers",
        "RocketboxUplinkCertificateEnds",
    ),
    ConditionKind(
        *("member_certificate_ends", "D303", "degraded", "30 days before it expires, by a synchronised clock"),
        "the certificate of member b expires in 12 days",
        "test_member_conditions.py::test_a_certificate_that_ends_is_told_by_its_member_and_by_the_leader",
    ),
    ConditionKind(
        *("member_certificate_refused", "D303", "degraded", "within 30 s of a change of the files"),
        "new files of this member are not in use: certificates in /etc/rocketbox/keys: key values mismatch",
        "test_member_conditions.py::test_a_certificate_that_ends_is_told_by_its_member_and_by_the_leader",
    ),
    ConditionKind(
        "clock_behind",
        "D201",
        "degraded",
        "within 10 s, above 1 minute",
        "the clock says 2026-01-01 00:00 UTC, 3.0 h before the newest message",
        f"{WALKS}[clock_set_back]",
    ),
    ConditionKind(
        "clock_untrusted",
        "D201",
        "degraded",
        "after 2 h without synchronisation",
        "the clock has not been synchronised for 2.0 h: retention by age is paused",
        "test_condition_rules.py::test_a_clock_that_nobody_sets_is_told_after_two_hours",
        "RocketboxClock",
    ),
    ConditionKind(
        "accounts_unusable",
        "D303",
        "degraded",
        "at once",
        "accounts: line 3 is not an account",
        "test_guard.py::test_what_is_wrong_with_keys_is_a_condition",
    ),
    ConditionKind(
        "access_open",
        "D303",
        "degraded",
        "at once",
        "access.mode is open: anybody who reaches the port can read and write",
        "test_guard.py::test_what_is_wrong_with_keys_is_a_condition",
    ),
    ConditionKind(
        "port_closed",
        "D302",
        "degraded",
        "at once, until a restart that can open the port",
        "no status page: port 8080 on 0.0.0.0 is taken by another program",
        "test_observation.py::test_a_port_that_is_taken_is_a_condition_with_the_next_step",
    ),
    ConditionKind(
        "tables_unsaved",
        "D109",
        "degraded",
        "at once",
        "changes are not saved and would be lost at a restart: config/topics.json: No space left on device",
        "test_condition_rules.py::test_each_fact_is_one_condition_with_its_numbers",
    ),
    ConditionKind(
        "table_damaged",
        "D109",
        "degraded",
        "from the start that found it until somebody removes the file `.damaged`",
        "config/topics.json and its .bak were damaged at a start: topics and their queue counts are guessed from the "
        "messages on the disk, topics without messages, types and permissions are gone",
        "test_health_walks.py::test_topics_that_were_guessed_degrade_the_box_until_what_was_kept_is_removed",
    ),
    ConditionKind(
        "notes_unsaved",
        "D204",
        "degraded",
        "at once",
        "the records of boots and restarts will be lost at the next boot: boots.jsonl: Operation not permitted",
        "test_supervision.py::test_a_start_whose_notes_are_protected_keeps_them_in_the_runtime_folder_and_says_so",
    ),
)
KINDS = {kind.id: kind for kind in CATALOGUE}
_WEIGHT = {kind.id: number for number, kind in enumerate(CATALOGUE)}


class Condition(NamedTuple):
    """One thing that is wrong now; `subject` tells conditions of one kind apart, `mark` grows when it gets worse."""

    id: str
    text: str
    next: str
    subject: str = ""
    mark: int = 0

    @property
    def kind(self) -> ConditionKind:
        return KINDS[self.id]

    @property
    def key(self) -> str:
        """Return the name that `rocketbox conditions mute` takes."""
        return f"{self.id}:{self.subject}" if self.subject else self.id

    def to_json(self) -> dict[str, str]:
        """Return what the health file holds of it."""
        kind = self.kind
        return {"id": self.key, "state": kind.state, "code": kind.code, "text": self.text, "next": self.next}


def ordered(found: Iterable[Condition]) -> list[Condition]:
    """Return conditions in the order of the catalogue; of one kind the worst mark first."""
    return sorted(found, key=lambda one: (_WEIGHT[one.id], -one.mark, one.subject))


def worst(states: Iterable[str]) -> str:
    """Return the worst of these states, ok without any."""
    return max(states, key=STATES.index, default="ok")


def documentation() -> str:
    """Return the table of docs/operate.md."""
    lines = [
        "| condition | code | state | sentence | holds | alert | test |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{k.id}` | {k.code} | `{k.state}` | {k.sentence} | {k.when} | `{k.alert}` | `{k.test}` |" for k in CATALOGUE
    ]
    return "\n".join(lines) + "\n"
