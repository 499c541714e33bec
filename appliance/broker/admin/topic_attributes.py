"""The attributes of a topic that tools of 5.x set, and their changes. Sans-I/O.

A value that this store cannot fulfil is refused. Source: RocketMQ 5.5.0 TopicAttributes.
"""

from collections.abc import Mapping

from netstack.errors import Refused
from netstack.wire.codes import ResponseCode

ALLOWED: Mapping[str, frozenset[str] | None] = {
    "queue.type": frozenset({"SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
    "message.type": frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY"}),
    "reserve.time": None,
    "acknowledge": frozenset({"local", "one", "both"}),  # this product's own
}
NOT_HERE: Mapping[tuple[str, str], str] = {
    ("queue.type", "BatchCQ"): "each message of a batch has its own entry here, as with SimpleCQ",
    ("cleanup.policy", "COMPACTION"): "messages are deleted by age and space here, whatever their keys, as with DELETE",
}


def changes_in(text: str) -> dict[str, str]:
    """Return sign and name → value of `+name=value,-name`, the form of a header."""
    parts = (change.partition("=") for change in text.split(",") if change)
    return {name: value for name, _, value in parts}


def changed(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes after changes from `+name` or `-name` to a value. Raises Refused."""
    found = dict(current)
    for signed, value in changes.items():
        name = signed[1:]
        reason = NOT_HERE.get((name, value))
        if signed.startswith("+") and reason:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"attribute {name}={value} is not supported: {reason}")
        if signed.startswith("+") and _allowed(name, value):
            found[name] = value
        elif signed.startswith("-") and name in found:
            del found[name]
        else:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"attribute {signed!r}={value!r}: expected +key=value or -key of {sorted(ALLOWED)}",
            )
    return found


def _allowed(name: str, value: str) -> bool:
    if name not in ALLOWED or not value:
        return False
    values = ALLOWED[name]
    return values is None or value in values
