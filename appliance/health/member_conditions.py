"""What is wrong in a group of boxes, as one member knows it; never more than degraded, since no restart cures it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from appliance.health.condition_rules import REPLICA_OUT_S, certificate, size, span
from appliance.health.conditions import Condition
from appliance.health.health_file import takes_messages

NO_LEADER_S = 10.0  # an election takes some seconds
NO_DISK_S = 2.0  # the first record of a leader is on another disk sooner
NO_DISK_STEP = "see `rocketbox group status`: start the others, make room on their disks; "
NO_DISK_STEP += "to go on with this copy alone: `rocketbox replica solo`"
DRIFT_S = 5.0
BEHIND_S = 10.0  # a copy that is so far behind, and stays
DIVERGED_MS = 7 * 86_400_000
PAGE = "docs/replication.md"
RENEW = "`rocketbox group init` with the same list and --dir, copy `keys` to each member: docs/group.md#certificates"
LOST = "docs/group.md#when-something-is-lost"
PAIR = 2  # members that elect nobody
Lasts = Callable[[str, bool], float]
"""Name of a state and whether it holds → for how long it has held, in seconds."""


def member_conditions(told: Mapping[str, Any], now_ms: int, lasts: Lasts) -> list[Condition]:
    """Return what is wrong besides `no_quorum`; `told` is what the health object says of the group."""
    found = [*_diverged(told, now_ms), *_clocks(told)]
    if told["leader"] != told["member"]:
        return found
    others = [each for each in told["members"] if each["member"] != told["member"]]
    boxes = [each for each in others if not each["witness"]]
    return [*found, *_one_copy(told, boxes, now_ms, lasts), *_copies(boxes, lasts), *_witnesses(others, lasts)]


def certificate_conditions(told: Mapping[str, Any], now_ms: int, *, trusted: bool) -> list[Condition]:
    """Return whose certificate ends soon: of this box, and at the leader of all that it has linked with."""
    own, seen = told["member"], told["certificates"]
    ends_ms = {own: seen["own_ends_ms"], **(seen["ends_ms"] if told["leader"] == own else {})}
    found = []
    for name in [each["member"] for each in told["members"] if each["member"] in ends_ms]:
        what, left_s = f"the certificate of member {name}", (ends_ms[name] - now_ms) / 1000
        told_of = certificate("member_certificate_ends", what, left_s, RENEW, trusted=trusted)
        found += [one._replace(subject=name) for one in told_of]
    if seen["failure"]:
        text = f"new files of this member are not in use: {seen['failure']}"
        found.append(Condition("member_certificate_refused", text, RENEW))
    return found


def quorum_conditions(told: Mapping[str, Any], lasts: Lasts) -> list[Condition]:
    """Return that nobody takes messages, since this box leads without another disk, or nobody leads."""
    leads = told["leader"] == told["member"]
    if told["serves"] and not takes_messages(told):
        text = f"this box leads, and {told['copies_there']} of {told['copies']} copies is there: sends are refused"
        return [Condition("no_quorum", text, NO_DISK_STEP)]
    alone_s = lasts("no_disk", leads and not told["serves"])
    if alone_s >= NO_DISK_S:
        text = f"this box leads, and no other disk takes its first record for {span(alone_s)}: sends are refused"
        return [Condition("no_quorum", text, NO_DISK_STEP)]
    out_s = lasts("no_leader", not told["serves"] and (leads or not told["leader"]))
    if out_s < NO_LEADER_S:
        return []
    step = f"on the box that is to lead: `rocketbox replica promote`, {PAGE}"
    if len(told["members"]) > PAIR:
        step = "start the others, look at the network between them (`rocketbox group status` on each); "
        step += f"if a majority is lost for good: {LOST}"
    return [Condition("no_quorum", f"no leader for {span(out_s)}: sends are refused", step)]


def _diverged(told: Mapping[str, Any], now_ms: int) -> Iterator[Condition]:
    cut = told["diverged"]
    if cut and now_ms - cut["at_ms"] < DIVERGED_MS:
        much = f"{size(cut['end'] - cut['start'])}, {cut['messages']} messages, at {cut['start']}"
        text = f"{much} were taken back: this log had what its leader's has not; kept: {cut['quarantine'] or '-'}"
        yield Condition("diverged", text, "stop this box, `rocketbox fsck DIR --salvage OUT --quarantine`, send again")


def _clocks(told: Mapping[str, Any]) -> Iterator[Condition]:
    for each in told["members"]:
        drift_s = each["clock_drift_s"]
        if drift_s is not None and abs(drift_s) >= DRIFT_S:
            way = "ahead of" if drift_s > 0 else "behind"
            text = f"the clock of {each['member']} is {span(abs(drift_s))} {way} this one's"
            yield Condition("member_clock", text, "let both boxes ask the same time server", each["member"])


def _one_copy(
    told: Mapping[str, Any], others: list[Mapping[str, Any]], now_ms: int, lasts: Lasts
) -> Iterator[Condition]:
    step = "start the other box, look at the network between them"
    out_s = lasts("no_copy", not any(each["connected"] for each in others))
    if told["alone_since_ms"] is not None:
        since = span(max(0, now_ms - told["alone_since_ms"]) / 1000)
        text = f"by order of a person only this disk has acknowledged for {since}: it has the one copy of that"
        yield Condition("one_copy", text, f"{step}; it ends once another copy is level")
    elif out_s >= REPLICA_OUT_S:
        text = f"no other copy for {span(out_s)}: this box has the only one of what came since"
        yield Condition("one_copy", text, step)


def _copies(others: list[Mapping[str, Any]], lasts: Lasts) -> Iterator[Condition]:
    some = any(each["connected"] for each in others)
    for each in others:
        name, behind, behind_s = each["member"], each["behind_bytes"], each["behind_s"]
        if each["refuses"] and behind:
            text = f"{name} {each['refuses']}; its copy is {size(behind)} behind"
            yield Condition("copy_behind", text, f"make room on the disk of {name}", name)
            continue
        gone_s = lasts(f"gone:{name}", some and not each["connected"])
        if gone_s >= REPLICA_OUT_S:
            text = (
                f"no connection to {name} for {span(gone_s)}: its copy stays behind; if a box fails now, nobody leads"
            )
            yield Condition("copy_behind", text, "start it, look at the network to it", name)
        late_s = lasts(f"behind:{name}", bool(each["connected"]) and (behind is None or behind_s >= BEHIND_S))
        if late_s >= REPLICA_OUT_S:
            text = f"{name} is connected and has not told for {span(late_s)} what it has"
            if behind is not None:
                text = f"the copy on {name} is {size(behind)} and {span(behind_s)} behind"
            yield Condition("copy_behind", text, "look at its disk and at the network between them", name)


def _witnesses(others: list[Mapping[str, Any]], lasts: Lasts) -> Iterator[Condition]:
    for each in others:
        out_s = lasts(f"witness:{each['member']}", each["witness"] and not each["connected"])
        if out_s >= REPLICA_OUT_S:
            out = any(not other["witness"] and not other["connected"] for other in others)
            then = (
                "a box is out, too: if this one restarts, nobody leads" if out else "if a box fails now, nobody leads"
            )
            text = f"no connection to the witness {each['member']} for {span(out_s)}: {then}"
            yield Condition("witness_lost", text, "start the witness, look at the network to it", each["member"])
