"""Facts in, conditions out: plain rules on plain values. What groups do over time is decided in `group_watch.py`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from appliance.health.conditions import Condition
from storage_driver.named_tuple import NamedTuple
from watchdog.proof import Reason

MIB, GIB = 1 << 20, 1 << 30
HOUR_S, DAY_S = 3600.0, 86_400.0
UPLINK_DOWN_S, UPLINK_LATE_S, UPLINK_FULL_S = 120.0, HOUR_S, DAY_S
REPLICA_OUT_S = 120.0
CERTIFICATE_S = 30 * DAY_S  # before its end
GIVEN_UP_MS = 7 * 86_400_000
UNTRUSTED_S, CLOCK_BEHIND_MS = 2 * HOUR_S, 60_000
WARN, REFUSE = 0.85, 0.90
BY_CODE = {
    "D501": "not_durable",
    "D502": "not_answering",
    "D503": "loop_late",
    "D504": "memory_short",
    "D505": "files_short",
}
REACHED_S = 1.0
FULL = {  # uplink.when_full: what will happen at the limit, what happens
    "drop_oldest": ("then the oldest is dropped", "the oldest is dropped"),
    "express_only": (
        "then the oldest is dropped, except express topics",
        "the oldest is dropped, except express topics",
    ),
    "reject_new": ("sends are then refused", "sends are refused"),
}
GUESSED = {
    "topics.json": "topics and their queue counts are guessed from the messages on the disk, topics without messages, "
    "types and permissions are gone",
    "subscriptionGroup.json": "groups come back with default settings as their consumers connect",
    "consumerOffset.json": "groups begin where their consumers say, so messages may come again or be passed over",
}
LOST_CLASSES = ("missing", "receipt_lost")
DOCTOR = "run `rocketbox doctor`: it tries the name, the connection and the certificate"


def of_watchdog(reason: Reason) -> Condition:
    """Return what the watchdog found as a condition."""
    return Condition(BY_CODE[reason.code], reason.text, reason.next)


MOST_NAMED = 3  # bad sectors in one sentence


class StoreSeen(NamedTuple):
    """What the store says; `verdict` is that of the recovery at this start."""

    failure: str | None = None
    read_only: str | None = None
    read_only_step: str = ""
    verdict: str = "clean"
    losses: Sequence[tuple[int, str]] = ()  # number and sentence of each that nobody has acknowledged
    damaged_ranges: int = 0  # that a reader or the scrub found, and nobody has acknowledged
    damage: str = ""  # what they held
    scrubbed_bytes: int = 0
    unsaved: Sequence[str] = ()
    guessed: Sequence[Path] = ()  # tables that were damaged at a start
    unreadable: Sequence[str] = ()  # what the disk has not given back since the start


def store_conditions(seen: StoreSeen) -> list[Condition]:
    """Return what is wrong with the log and the tables."""
    found = []
    if seen.read_only is not None:
        text = f"read-only, sends are refused: {seen.read_only}"
        found.append(Condition("read_only", text, seen.read_only_step))
    elif seen.failure is not None:
        step = "replace the disk; see D101 and D104 of `rocketbox doctor`"
        found.append(Condition("log_failed", f"the log's disk failed: {seen.failure}", step))
    step = "`rocketbox loss` lists them, `rocketbox loss --acknowledge` acknowledges them; see D101 and D104"
    found += [Condition("data_lost", text, step, str(number), number) for number, text in seen.losses]
    if seen.verdict == "salvaged":
        step = "`rocketbox loss` lists what is gone; the newest file in verdicts/ tells what was found and kept"
        found.append(Condition("data_damaged", "the recovery at this start salvaged a damaged log", step))
    if seen.damaged_ranges:
        ranges = "1 damaged range" if seen.damaged_ranges == 1 else f"{seen.damaged_ranges} damaged ranges"
        text = f"{ranges} in the log; the scrub has read {size(seen.scrubbed_bytes)} since the start; {seen.damage}"
        step = (
            "`rocketbox loss` lists the messages: have them sent again; `rocketbox doctor` tells whether the disk "
            "wears out (D104); `rocketbox loss --acknowledge` ends this"
        )
        found.append(Condition("data_damaged", text, step, "scrub", seen.damaged_ranges))
    if seen.unreadable:
        more = f" and {len(seen.unreadable) - MOST_NAMED} more" if len(seen.unreadable) > MOST_NAMED else ""
        text = f"bad sectors: {'; '.join(seen.unreadable[:MOST_NAMED])}{more}"
        step = "`rocketbox loss` lists messages that were in them; see D104 of `rocketbox doctor`: the disk wears out"
        found.append(Condition("data_damaged", text, step, "unreadable", len(seen.unreadable)))
    if seen.unsaved:
        text = f"changes are not saved and would be lost at a restart: {', '.join(seen.unsaved)}"
        step = "check permissions (ls -l, lsattr) and free space (df, df -i)"
        found.append(Condition("tables_unsaved", text, step))
    return found + [_guessed(path) for path in seen.guessed]


def _guessed(path: Path) -> Condition:
    """Return that a table was begun anew, and what stands in it now."""
    name = f"{path.parent.name}/{path.name}"
    text = f"{name} and its .bak were damaged at a start: {GUESSED.get(path.name, 'the table was begun anew')}"
    step = (
        f"stop the box and put {name} from a backup in its place, or correct by hand what differs; "
        f"then remove {path}.damaged, which is what was there"
    )
    return Condition("table_damaged", text, step, name)


class SpaceSeen(NamedTuple):
    """How full the disk is, and with what; `full` is why the store takes nothing, `quota_bytes` 0: no quota."""

    used: float
    used_bytes: int = 0
    full_in_h: float | None = None
    full: str | None = None
    log_bytes: int = 0
    unshipped_bytes: int = 0
    segment_bytes: int = 0
    quota_bytes: int = 0


def space_conditions(seen: SpaceSeen) -> list[Condition]:
    """Return that the disk gets full, or that the quota does not bind; a restart cures none of it."""
    found = []
    if seen.used >= WARN or seen.full is not None:
        refused = seen.full is not None or seen.used >= REFUSE
        what = "sends are refused" if refused else "old segments are deleted"
        what = f"disk {seen.used:.0%} full, {what}" if seen.used >= WARN else what
        what += f" ({seen.full})" if seen.full else ""
        what += f", full in {seen.full_in_h:.0f} h" if seen.full_in_h is not None and not seen.full else ""
        found.append(Condition("sends_refused" if refused else "disk_filling", what, space_step(seen)))
    over = seen.log_bytes - seen.quota_bytes - seen.segment_bytes  # the newest file is never deleted
    if seen.quota_bytes and over > 0:
        why = (
            f"{size(seen.unshipped_bytes)} are unshipped and stay" if seen.unshipped_bytes else "delayed messages wait"
        )
        text = f"the log holds {size(seen.log_bytes)}, store.quota_gib allows {size(seen.quota_bytes)}: {why}"
        step = "restore the uplink (`rocketbox uplink test`); uplink.max_lag_bytes limits unshipped data"
        if not seen.unshipped_bytes:
            step = "deletion continues once delayed messages are delivered and half messages are decided"
        found.append(Condition("quota_exceeded", text, step))
    return found


def space_step(seen: SpaceSeen) -> str:
    """Return the setting or action that helps for what fills this disk."""
    if seen.full and seen.used < WARN:
        return "free space on it, or set a smaller store.segment_mib, or give the data a larger disk"
    if seen.used_bytes and seen.log_bytes < seen.used_bytes // 2:
        return (
            f"check what else is on the disk: the log is {size(seen.log_bytes)} of {size(seen.used_bytes)} in use "
            "(`du -xh --max-depth=1` on the machine)"
        )
    if seen.unshipped_bytes > seen.log_bytes // 2:
        return (
            f"restore the uplink: {size(seen.unshipped_bytes)} of the log wait for it (`rocketbox uplink test`); "
            "uplink.max_lag_bytes limits unshipped data, store.retention_h does not"
        )
    return f"shorten store.retention_h or set store.quota_gib below {seen.log_bytes / GIB:.1f}"


class UplinkSeen(Protocol):
    """What the shipper's snapshot tells about the uplink."""

    @property
    def address(self) -> str: ...
    @property
    def connected(self) -> bool: ...
    @property
    def paused(self) -> bool: ...
    @property
    def unshipped_bytes(self) -> int: ...
    @property
    def oldest_unshipped_s(self) -> float: ...
    @property
    def quota_left_s(self) -> float: ...
    @property
    def alarms(self) -> Mapping[str, str]: ...
    @property
    def last_error(self) -> str: ...
    @property
    def certificate_left_s(self) -> float | None: ...


def uplink_conditions(
    seen: UplinkSeen, *, down_s: float = 0.0, limit_bytes: int = 0, when_full: str = "drop_oldest", trusted: bool = True
) -> list[Condition]:
    """Return that the log waits on the box, or soon will: never more than degraded, since a restart cures no link.

    limit_bytes: of unshipped data, above which `when_full` says what gives way; 0: not known yet.
    """
    found, waiting = list[Condition](), size(seen.unshipped_bytes)
    why = f", last error: {seen.last_error}" if seen.last_error else ""
    if down_s >= UPLINK_DOWN_S and seen.unshipped_bytes and not seen.connected and not seen.paused:
        text = f"no connection to the gateway {seen.address} for {span(down_s)}, {waiting} waiting{why}"
        found.append(Condition("uplink_down", text, DOCTOR))
    if seen.oldest_unshipped_s > UPLINK_LATE_S:
        paused = ", the uplink is paused" if seen.paused else why
        text = f"no receipt for {span(seen.oldest_unshipped_s)}, {waiting} waiting{paused}"
        found.append(Condition("uplink_late", text, "`rocketbox uplink resume`" if seen.paused else DOCTOR))
    soon = 0 <= seen.quota_left_s < UPLINK_FULL_S and seen.unshipped_bytes > limit_bytes // 10  # no short burst
    if limit_bytes and seen.unshipped_bytes and (soon or seen.unshipped_bytes > limit_bytes // 2):
        found.append(_filling(seen, limit_bytes, when_full))
    found += [_alarm(name, text) for name, text in seen.alarms.items()]
    step = "create a new one at the centre (`python -m uplink_spark certs`) and copy it into the folder uplink.certs"
    text = "the certificate for the gateway"
    return found + certificate("uplink_certificate_ends", text, seen.certificate_left_s, step, trusted=trusted)


def _filling(seen: UplinkSeen, limit_bytes: int, when_full: str) -> Condition:
    """Return that unshipped data is near its limit or at it; a segment given up makes room for a moment only."""
    what, limit = f"unshipped data, {size(seen.unshipped_bytes)}", size(limit_bytes)
    gives, given = FULL.get(when_full, FULL["drop_oldest"])
    if seen.unshipped_bytes >= limit_bytes or 0 <= seen.quota_left_s < REACHED_S:
        text = f"{what}, has reached the limit of {limit}: {given}"
    elif seen.quota_left_s < 0:
        text = f"{what}, is over half of the limit of {limit}"
    else:
        text = f"{what}, reaches the limit of {limit} in {span(seen.quota_left_s)}: {gives}"
    step = "restore the link, raise uplink.max_lag_bytes, or export to a stick: `rocketbox uplink export`"
    return Condition("uplink_filling", text, step)


def _alarm(name: str, text: str) -> Condition:
    if name == "damage":
        step = (
            "have these messages sent again; the bytes are kept in quarantine/, the centre has them as a gap "
            "`damaged`; `rocketbox doctor` tells whether the disk wears out (D104)"
        )
        return Condition(
            "data_damaged", f"bytes of the log are damaged and were shipped as such: {text}", step, "shipped"
        )
    return Condition("uplink_alarm", f"the uplink reports {name}: {text}", DOCTOR, name)


def certificate(kind: str, what: str, left_s: float | None, step: str, *, trusted: bool) -> list[Condition]:
    """Return that a certificate ends within 30 days, or has; a clock that nobody set cannot tell."""
    if left_s is None or left_s >= CERTIFICATE_S or not trusted:
        return []
    when = f"expires in {left_s / DAY_S:.0f} days" if left_s > 0 else "has expired"
    return [Condition(kind, f"{what} {when}", step)]


def replication_conditions(told: Mapping[str, object], out_s: float) -> list[Condition]:
    """Return what is wrong between master and slave, never more than degraded, since a restart cures neither.

    told: what the health object says; out_s: how long the other side has not been there.
    """
    if told["role"] == "master":
        text = f"no slave for {span(out_s)}: this box has the only copy of what came since"
        step = 'start the slave, or set replication.role = "alone"; `rocketbox metrics` says who was refused'
        return [Condition("no_slave", text, step)] if out_s >= REPLICA_OUT_S else []
    if told["differs"]:
        step = "decide which log counts; to follow again, move this box's store away and restart it"
        return [Condition("copy_differs", str(told["differs"]), step)]
    why = f", last error: {told['lost']}" if told["lost"] else ""
    text = f"no connection to the master {told['master']} for {span(out_s)}{why}"
    step = "start the master; if it is lost, make this box the broker: docs/replication.md"
    return [Condition("master_lost", text, step)] if out_s >= REPLICA_OUT_S else []


class GapSeen(NamedTuple):
    """A range of the log that was declared lost to the centre."""

    kind: str
    reason: str
    bytes: int
    records: int | None
    declared_ms: int


def gap_conditions(gaps: Iterable[GapSeen], now_ms: int) -> list[Condition]:
    """Return what was dropped before the centre had it, except for what an operator discarded, of the last week."""
    lost = [
        gap
        for gap in gaps
        if gap.kind in LOST_CLASSES and gap.reason != "operator" and now_ms - gap.declared_ms < GIVEN_UP_MS
    ]
    if not lost:
        return []
    records = sum(gap.records or 0 for gap in lost)
    reasons = ", ".join(sorted({gap.reason for gap in lost}))
    ranges = "1 range" if len(lost) == 1 else f"{len(lost)} ranges"
    text = (
        f"{ranges} of the log, {records:,} messages, {size(sum(gap.bytes for gap in lost))}, "
        f"{'was' if len(lost) == 1 else 'were'} dropped before the gateway had {'it' if len(lost) == 1 else 'them'} "
        f"({reasons})"
    )
    step = "`rocketbox uplink gaps` lists them; restore the link or raise uplink.max_lag_bytes; then mute this"
    return [Condition("data_given_up", text, step, mark=max(gap.declared_ms for gap in lost))]


def clock_conditions(now_ms: int, newest_ms: int, untrusted_s: float) -> list[Condition]:
    """Return that the clock is wrong for sure, or that nobody has set it for long."""
    step = "`timedatectl status`; is UDP 123 open? `rocketbox provision` sets the clock from a laptop"
    if newest_ms - now_ms > CLOCK_BEHIND_MS:
        says = datetime.fromtimestamp(max(0, now_ms) / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        behind = span((newest_ms - now_ms) / 1000)
        return [Condition("clock_behind", f"the clock says {says}, {behind} before the newest message", step)]
    if untrusted_s >= UNTRUSTED_S:
        text = f"the clock has not been synchronised for {span(untrusted_s)}: retention by age is paused"
        return [Condition("clock_untrusted", text, step)]
    return []


def size(count: float) -> str:
    """Return bytes in the largest unit that leaves a digit before the point."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def span(seconds: float) -> str:
    """Return a duration in the unit that matters."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < HOUR_S else f"{seconds / HOUR_S:.1f} h"
