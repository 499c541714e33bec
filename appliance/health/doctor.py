"""Facts about a box in, findings out: what is wrong, why it matters, what to do next. Gathering is `doctor_facts.py`.

A check whose facts are missing finds nothing: facts may come from another machine or an older version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.health.health_file import DOWN

Facts = Mapping[str, Any]
SEVERITIES = ("ok", "warning", "error")
SHIPPED_SYSCTL = {
    "vm.dirty_background_bytes": 16777216,
    "vm.dirty_bytes": 67108864,
    "vm.dirty_expire_centisecs": 500,
    "vm.dirty_writeback_centisecs": 100,
    "vm.swappiness": 1,
    "kernel.panic": 10,
    "kernel.panic_on_oops": 1,
    "net.core.somaxconn": 4096,
}
NO_DURABILITY = {"tmpfs", "ramfs", "overlay", "nfs", "nfs4", "cifs", "9p", "fuse.sshfs", "virtiofs"}
OF_HOST = frozenset(("D102", "D103", "D201"))  # what only the host of a container can change
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's outcome; `value` is what was measured or read."""

    code: str
    severity: str
    value: str
    reason: str = ""
    next: str = ""

    def to_json(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("code", "severity", "value", "reason", "next")}


Check = Callable[[Facts], Iterator[Finding]]


def examine(facts: Facts) -> list[Finding]:
    """Run every check over the facts; in a container a step that its host takes says so."""
    found = [finding for check in CHECKS for finding in check(facts)]
    if not facts.get("container"):
        return found
    return [replace(one, next=f"on the host: {one.next}") if one.next and one.code in OF_HOST else one for one in found]


def _step(facts: Facts, machine: str, container: str) -> str:
    """Return what the owner of this machine, or of this container, can do."""
    return container if facts.get("container") else machine


def exit_status(findings: list[Finding]) -> int:
    """Return 0, 1 with warnings, 2 with errors."""
    return max((SEVERITIES.index(one.severity) for one in findings), default=0)


def _sync(facts: Facts) -> Iterator[Finding]:
    seen = facts.get("sync_ms")
    if not seen:
        return
    value = f"fdatasync p50 {seen['p50']:.2f} ms, p99 {seen['p99']:.2f} ms"
    if seen["p50"] < 0.02 and not facts.get("disk", {}).get("power_loss_protection"):
        reason = "flushes are probably ignored: acknowledged messages would not survive a power cut"
        yield Finding("D101", "error", value, reason, "use a disk that honours flushes, or pass them through the VM")
    elif seen["p99"] > 1000:
        yield Finding("D101", "error", value, "every send waits this long", "replace the disk; see D104")
    elif seen["p99"] > 20:
        yield Finding("D101", "warning", value, "sends wait for the disk", "use an SSD, enable fstrim.timer; see D103")
    else:
        yield Finding("D101", "ok", value)


def _write_cache(facts: Facts) -> Iterator[Finding]:
    disk = facts.get("disk", {})
    mode = disk.get("write_cache")
    if mode is None:
        return
    if mode == "write through" and disk.get("has_volatile_cache"):
        reason = "the kernel sends no flushes although the disk keeps writes in a volatile cache"
        step = f"echo 'write back' > /sys/block/{disk.get('name')}/queue/write_cache"
        yield Finding("D102", "error", mode, reason, step)
    else:
        yield Finding("D102", "ok", f"{disk.get('name')}: {mode}")


def _file_system(facts: Facts) -> Iterator[Finding]:
    found = facts.get("file_system")
    if not found:
        return
    kind, options = found["type"], set(found.get("options", "").split(","))
    folder = found.get("folder", "/var/lib/rocketbox")
    value = f"{kind} on {found.get('device')} at {found.get('mount')}"
    if kind in NO_DURABILITY:
        step = f"put {folder} on a local ext4 or xfs partition"
        step += _step(facts, "", f", as a volume: `-v box:{folder}`")
        yield Finding("D103", "error", value, f"{kind} can lose synced data", step)
    elif options & {"nobarrier", "barrier=0"}:
        reason = "barriers are off: a sync reaches only the disk's cache"
        yield Finding("D103", "error", value, reason, "remove nobarrier from /etc/fstab and remount")
    elif options & {"ro", "emergency_ro", "shutdown"}:  # the last two: ext4 after an error, from Linux 6.15 on
        step = "fsck the partition, then reboot; see D104"
        yield Finding("D103", "error", value, "the file system is read-only after an error", step)
    elif found.get("mount") == "/":
        step = f"give {folder} its own partition, see fstab.example"
        yield Finding("D103", "warning", value, "shares the root file system: other programs can fill it", step)
    elif "discard" in options or "noatime" not in options:
        what = "online discard stalls flushes on cheap SSDs" if "discard" in options else "reads cause writes (atime)"
        yield Finding(
            "D103", "warning", value, what, "mount with noatime and without discard; fstrim.timer trims weekly"
        )
    else:
        yield Finding("D103", "ok", value)


def _wear(facts: Facts) -> Iterator[Finding]:
    wear = facts.get("wear")
    if not wear or wear.get("used_percent") is None:
        return
    used = wear["used_percent"]
    value = f"{used} % of the rated writes used, {wear.get('media_errors', 0)} media errors"
    severity = "error" if used > 95 or wear.get("media_errors") else "warning" if used > 80 else "ok"
    step = "" if severity == "ok" else "run `rocketbox backup`, then replace the disk"
    yield Finding("D104", severity, value, "" if severity == "ok" else "the disk is near the end of its life", step)


def _life(facts: Facts) -> Iterator[Finding]:
    years = facts.get("life_years")
    if years is None:
        return
    value = f"at this rate the disk lasts {years:.1f} years"
    severity = "error" if years < 1 else "warning" if years < 3 else "ok"
    step = "" if severity == "ok" else "batch sends, set store.zero_ahead = false, or use a disk rated for more writes"
    yield Finding(
        "D105", severity, value, "" if severity == "ok" else "more is written than the disk is rated for", step
    )


def _tuning(facts: Facts) -> Iterator[Finding]:
    present = facts.get("sysctl", {})
    differ = [
        f"{key} = {present[key]}, shipped {want}" for key, want in SHIPPED_SYSCTL.items() if _differs(present, key)
    ]
    disk = facts.get("disk", {})
    wanted = {"nvme": "none", "ssd": "mq-deadline"}.get(str(disk.get("kind")))
    if wanted and disk.get("scheduler") not in (None, wanted):
        differ.append(f"scheduler of {disk.get('name')} = {disk['scheduler']}, shipped {wanted}")
    if differ:
        reason = "write-back of other files can delay the log's flush"
        fix = f"as root: `{facts.get('program', 'rocketbox')} doctor --fix`"
        step = _step(facts, fix, "set them on the host (/etc/sysctl.d)")
        yield Finding("D106", "warning", "; ".join(differ), reason, step)
    elif present:
        yield Finding("D106", "ok", "kernel settings as shipped")
    if facts.get("swap_bytes"):
        value = f"{facts['swap_bytes'] / GIB:.1f} GiB of swap is on"
        contained = "give the container none, as with `--memory 1g --memory-swap 1g`, or the host"
        step = _step(facts, "swapoff -a, and remove swap from /etc/fstab", contained)
        yield Finding("D106", "warning", value, "a swapped-out broker misses the watchdog and wears the disk", step)


def _differs(present: Mapping[str, Any], key: str) -> bool:
    return key in present and int(present[key]) != SHIPPED_SYSCTL[key]


def _space(facts: Facts) -> Iterator[Finding]:
    space = facts.get("space")
    if not space:
        return
    value = f"{space['used']:.0%} used, {space['free_bytes'] / GIB:.1f} GiB free, inodes {space.get('inodes', 0):.0%}"
    said = [one["next"] for one in facts.get("health", {}).get("reasons", ()) if one["code"] == "D107"]
    step = "shorten store.retention_h, set store.quota_gib, check what else is on the disk"
    step += _step(facts, ": `du -xh --max-depth=1`", "")
    step = str(said[0]) if said else step  # the box that runs knows what fills it
    if space["used"] >= 0.90 or space.get("inodes", 0) >= 0.95:
        yield Finding("D107", "error", value, "sends are refused until there is room", step)
    elif space["used"] >= 0.75:
        yield Finding("D107", "warning", value, "expired segments are being deleted", step)
    else:
        yield Finding("D107", "ok", value)


def _clock(facts: Facts) -> Iterator[Finding]:
    clock = facts.get("clock")
    if not clock:
        return
    value = f"{clock.get('wall', '?')}, {'synchronised' if clock.get('synchronised') else 'not synchronised'}"
    if clock.get("year", 2030) < 2024:
        reason = "the clock is wrong: TLS fails, retention by age is paused"
        step = "`timedatectl set-ntp true`, or `rocketbox provision` sets it from the bench"
        yield Finding("D201", "error", value, reason, step)
    elif not clock.get("synchronised"):
        step = "`timedatectl status`; is UDP 123 open? Is a time server configured?"
        yield Finding("D201", "warning", value, "retention by age is paused until the clock is synchronised", step)
    else:
        yield Finding("D201", "ok", value)


def _watchdog(facts: Facts) -> Iterator[Finding]:
    if "watchdog" not in facts or facts.get("container"):
        return  # its engine restarts a container, the host's watchdog the host
    driver = facts["watchdog"]
    drivers = "iTCO_wdt, sp5100_tco, bcm2835_wdt; in a virtual machine i6300esb or softdog"
    step = f"name the board's driver in /etc/modules-load.d/rocketbox.conf: {drivers}"
    if driver is None:
        severity = "warning" if facts.get("virtual") else "error"  # its host can reset a virtual machine
        yield Finding("D202", severity, "no watchdog device", "a hung kernel stays hung until a manual reset", step)
    elif "soft" in driver.lower():
        yield Finding(
            "D202", "warning", driver, "it resets the machine if systemd hangs, not if the kernel hangs", step
        )
    else:
        yield Finding("D202", "ok", driver)


def _slots(facts: Facts) -> Iterator[Finding]:
    for kind in ("slot", "image"):
        held = facts.get(f"{kind}s")
        if not held:
            continue
        gone = held.get("rolled_back")
        if held.get("trial"):
            left = f", {held['tries']} tries left" if "tries" in held else ""
            step = "`rocketbox selftest`; it is committed after the self-test"
            value, reason = f"{kind} {held['trial']} on trial{left}", "the new version has not passed its self-test yet"
            yield Finding("D203", "warning", value, reason, step)
        elif gone:
            step = "read `journalctl -b -1 -u rocketbox`; install a later version"
            yield Finding("D203", "warning", f"{kind} {gone.get('version')} was rolled back", str(gone["reason"]), step)
        else:
            yield Finding("D203", "ok", f"{kind} {held.get('active', '')} committed".replace("  ", " "))


def _build(facts: Facts) -> Iterator[Finding]:
    pure = facts.get("health", {}).get("pure")
    if pure:
        reason = "each message costs about 1.5 times the processor time"
        yield Finding("D205", "ok", f"pure Python: {pure}", reason)
    elif pure is not None:
        yield Finding("D205", "ok", "compiled")


def _boots(facts: Facts) -> Iterator[Finding]:
    boots = facts.get("boots_24h")
    if boots is not None:
        count = "1 boot" if boots["count"] == 1 else f"{boots['count']} boots"
        value = f"{count} in 24 h, the last because of {boots['reason']}"
        bad = boots["count"] > 3 or boots["reason"] not in ("power", "planned")
        step = "`rocketbox status`; read starving.json and exits.jsonl in /var/lib/rocketbox/watchdog" if bad else ""
        yield Finding("D204", "warning" if bad else "ok", value, "the box restarts by itself" if bad else "", step)
    for path in facts.get("drop_ins", ()):
        step = f"`systemctl revert rocketbox.service`, or remove {path}"
        yield Finding("D204", "warning", path, "a drop-in weakens or changes the shipped unit", step)


def _network(facts: Facts) -> Iterator[Finding]:
    if "addresses" in facts and not facts["addresses"]:
        reason = "routes name an address that clients cannot reach"
        step = _step(facts, "plug in the network cable, check DHCP: `ip address`", "give the container a network")
        yield Finding("D301", "error", "no address but loopback", reason, step)
    for address in facts.get("duplicate_addresses", ()):
        step = "give one of the two another address"
        yield Finding("D301", "error", address, "another machine answers for this address too", step)
    for port in facts.get("ports", ()):
        where = f"{port['address']}:{port['port']}"
        if port.get("taken_by"):
            key = port.get("key", "listen.broker_port")
            step = f"stop it; or another `{key}`, where systemd opens it also `ListenStream=` of its socket unit"
            yield Finding("D302", "error", where, f"the port is taken by {port['taken_by']}", step)
        elif not port.get("reachable", True) and not _is_down(facts):
            step = "`rocketbox config show --origin`: listen.host and advertise.rules"
            step += _step(facts, "; `nft list ruleset`", "; are the ports published?")
            yield Finding("D302", "error", where, "routes name this address, but nothing answers there", step)


def _access(facts: Facts) -> Iterator[Finding]:
    if facts.get("access_mode") == "open":
        step = 'set access.mode = "subnet" or "keys"'
        yield Finding("D303", "warning", "access.mode = open", "anybody who reaches the port may read and write", step)
    if networks := facts.get("access_open_to"):
        step = 'name your own networks in access.allow, or set access.mode = "keys"'
        value = f"access.allow = {', '.join(networks)}"
        yield Finding("D303", "warning", value, "anybody who reaches the port may read and write", step)
    for cert in facts.get("certificates", ()):
        value = f"{cert['path']}: {cert['days']} days left"
        if cert["days"] < 30:
            severity = "error" if cert["days"] <= 0 else "warning"
            step = "renew it: `rocketbox tls make`; `python -m uplink_spark certs` for the uplink; "
            step += "`rocketbox group init` for members of a group"
            yield Finding("D303", severity, value, "TLS peers refuse an expired certificate", step)


def _uplink(facts: Facts) -> Iterator[Finding]:
    uplink = facts.get("uplink")
    if not uplink or not uplink.get("gateway"):
        return
    gateway, step = uplink["gateway"], "is uplink.gateway correct? "
    step += _step(facts, "Does DNS work: `resolvectl status`", "Does the container's network resolve names?")
    if not uplink.get("resolved", True):
        yield Finding("D310", "error", gateway, "the gateway's name cannot be resolved", step)
    elif not uplink.get("connected", True):
        step = "is the gateway running, and does every firewall allow this port?"
        yield Finding("D310", "error", gateway, f"no connection: {uplink.get('error', 'no answer')}", step)
    elif uplink.get("receipt_age_s", 0) > 3600:
        value = f"{gateway}: no receipt for {uplink['receipt_age_s'] / 3600:.1f} h"
        yield Finding("D310", "warning", value, "the log waits on the box", "read the gateway's log; see D201 and D303")
    else:
        yield Finding("D310", "ok", gateway)


def _names(facts: Facts) -> Iterator[Finding]:
    for name, owner in facts.get("foreign_names", {}).items():
        reason = f"the package {name} belongs to {owner} and hides the product's own"
        yield Finding("D401", "error", f"{name} from {owner}", reason, f"`pip uninstall {owner}` in this environment")


def _state(facts: Facts) -> Iterator[Finding]:
    health = facts.get("health")
    if not health:
        return
    for reason in health.get("reasons", ()):
        severity = "warning" if reason.get("state", health.get("state")) == "degraded" else "error"
        why = "nothing shows that the box serves clients" if reason["code"] == DOWN else "reported by the box itself"
        yield Finding(str(reason["code"]), severity, str(reason["text"]), why, str(reason["next"]))


def _is_down(facts: Facts) -> bool:
    """Tell whether the product itself is missing, so that nothing can answer."""
    return any(reason["code"] == DOWN for reason in facts.get("health", {}).get("reasons", ()))


CHECKS: tuple[Check, ...] = (
    *(_state, _sync, _write_cache, _file_system, _wear, _life, _tuning, _space),
    *(_clock, _watchdog, _slots, _build, _boots, _network, _access, _uplink, _names),
)
