"""What the page says of a group of boxes: who takes the messages, what each member has, in words for anybody."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from appliance.health.condition_rules import size, span
from appliance.health.health_file import copies_told, takes_messages
from netstack.serving.addresses import split_host_port

PAIR = 2  # boxes without a witness elect nobody
GOOD, WARN, BAD = "good", "warn", "bad"


class MemberLine(NamedTuple):
    """One member: what it is, where, what it has; `level`: how that is to be shown."""

    name: str
    address: str
    text: str
    level: str = ""


class GroupCard(NamedTuple):
    """The card of a group."""

    tag: str
    level: str
    sentence: str
    lines: tuple[MemberLine, ...]
    copies: str = ""  # how many are wanted, and there


def group_card(told: Mapping[str, Any]) -> GroupCard:
    """Return what is shown; `told` is what the health object says of the group."""
    return _card(told)._replace(copies=copies_told(told))


def _card(told: Mapping[str, Any]) -> GroupCard:
    own, leader = str(told["member"]), str(told["leader"])
    lines = tuple(_line(each, told) for each in told["members"])
    if takes_messages(told):
        return GroupCard("leader", GOOD, f"This box, {own}, takes all messages; the others copy them.", lines)
    if told["serves"]:
        text = f"This box, {own}, leads, and sends are refused: a message is to be on {told['copies']} disks."
        return GroupCard("copies are missing", BAD, text, lines)
    if leader == own:
        text = f"This box, {own}, has been elected and takes messages in a moment."
        return GroupCard("not ready", WARN, text, lines)
    if leader:
        text = f"{leader} takes the messages. This box, {own}, has a copy and hands on what clients send it; "
        return GroupCard(f"follows {leader}", GOOD, f"{text}it can take over if {leader} fails.", lines)
    names = [each["member"] for each in told["members"]]
    until = f"{len(names) // 2 + 1} of {', '.join(names)} reach one another"
    if len(names) == PAIR:
        until = "a box leads: `rocketbox replica promote` on the one that is to"
    return GroupCard("no leader", BAD, f"Nobody takes messages: sends are refused until {until}.", lines)


def _line(each: Mapping[str, Any], told: Mapping[str, Any]) -> MemberLine:
    own = each["member"] == told["member"]
    kind = "Witness" if each["witness"] else "Box"
    name = f"{kind} {each['member']}" + (", this one" if own else "")
    text, level = _state(each, told, own=own)
    return MemberLine(name, split_host_port(each["address"])[0] if each["address"] else "", text, level)


def _state(each: Mapping[str, Any], told: Mapping[str, Any], *, own: bool) -> tuple[str, str]:
    """Return what a member has, as far as this one knows: of other copies only a leader does."""
    if not each["connected"]:
        lost = "if a box fails now, nobody leads" if each["witness"] else "it copies what it lacks once it is back"
        return f"not connected; {lost}" if told["serves"] else "not connected", WARN
    if each["witness"]:
        return "connected; it votes and has no messages", ""
    if own and not told["leader"]:
        return "runs", ""
    if each["member"] == told["leader"]:
        return "leads, has everything" if own else "leads", ""
    learns = ", does not vote yet" if each["learner"] else ""
    if not own and not told["serves"]:
        return f"connected{learns}", ""
    if each["behind_bytes"] is None:
        return f"connected; what it has is not known yet{learns}", WARN
    if each["behind_bytes"]:
        why = f": {each['refuses']}" if each["refuses"] else ""
        return f"{size(each['behind_bytes'])} and {span(each['behind_s'])} behind{learns}{why}", WARN
    return f"has everything{learns}", ""
