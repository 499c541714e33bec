"""What the broker adds to and takes from the properties of a message that a client sends.

Taken: WAIT, POP_CK; a message of a batch keeps WAIT=false. Added: CLUSTER, MSG_REGION, TRACE_ON, and UNIQ_KEY where the
client sent none. Works on the text as it came, since taking it apart and together again costs more than the append.
Source: RocketMQ 4.9.8, 5.3 SendMessageProcessor; stored always, as 5.x does.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Final

# A message with one of these is looked at as a whole: the broker acts on it, or the name is there already.
_MEANINGFUL: Final = (
    "DELAY",
    "TRAN_MSG",
    "TIMER_DELIVER_MS",
    "_SYS_MSG_PRIORITY_\x01",
    "MSG_REGION\x01",
    "POP_CK\x01",
    "CLUSTER\x01",
    "TRACE_ON\x01",
)
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
_OTHER_KINDS: Final = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "__SHARDINGKEY")
_WAIT, _UNIQUE = "WAIT\x01", "UNIQ_KEY\x01"
_UNIQUE_BYTES: Final = b"UNIQ_KEY\x01"
_END, _END_BYTES = "\x02", b"\x02"
_JAVA_WAIT: Final = "WAIT\x01true"  # what Java's properties end with, when they begin with UNIQ_KEY, most of the time
_JAVA_WAIT_BYTES: Final = _JAVA_WAIT.encode()
_JAVA_END, _JAVA_END_BYTES = _END + _JAVA_WAIT, _END_BYTES + _JAVA_WAIT_BYTES
_OTHERS_WAIT, _OTHERS_END_BYTES = _JAVA_WAIT + _END, _JAVA_END_BYTES + _END_BYTES  # Go's, and of Java before 4.9


class PropertyRules:
    """What is added to each message of one broker."""

    def __init__(
        self, *, cluster: str, region: str, trace_on: bool, unique_keys: Callable[[], str] | None = None
    ) -> None:
        self.region, self.trace_on = region, trace_on
        self.added = {"CLUSTER": cluster, "MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}
        self._suffix = _END.join(f"{name}\x01{value}" for name, value in self.added.items()) + _END
        self._suffix_bytes = self._suffix.encode()
        self._new_unique_key = unique_keys or new_unique_keys()

    def stored(self, text: str) -> bytes:
        """Return the properties to store of a message that needs no draft."""
        if text.startswith(_UNIQUE) and text.endswith(_JAVA_END):
            return (text[: -len(_JAVA_WAIT)] + self._suffix).encode("utf-8", "replace")
        if _WAIT in text:
            text = without(text, _WAIT)
        if text and text[-1] != _END:
            text += _END
        if not text.startswith(_UNIQUE) and _END + _UNIQUE not in text:
            text = f"{text}{_UNIQUE}{self._new_unique_key()}{_END}"
        return (text + self._suffix).encode("utf-8", "replace")

    def stored_bare(self, unique: str) -> bytes:
        """Return the same for a message that has nothing but its key."""
        return f"{_UNIQUE}{unique}{_END}{self._suffix}".encode("utf-8", "replace")

    def stored_bytes(self, raw: bytes) -> bytes:
        """Return the properties to store of one message of a batch."""
        if raw.startswith(_UNIQUE_BYTES):
            if raw.endswith(_JAVA_END_BYTES):
                return raw[: -len(_JAVA_WAIT)] + self._suffix_bytes
            if raw.endswith(_OTHERS_END_BYTES):
                return raw[: -len(_JAVA_WAIT) - 1] + self._suffix_bytes
        if raw.find(_JAVA_WAIT_BYTES) >= 0:  # `in` raises and catches an error first
            raw = without_bytes(raw, _JAVA_WAIT_BYTES)
        if raw and raw[-1] != 2:
            raw += _END_BYTES
        if not raw.startswith(_UNIQUE_BYTES) and raw.find(_END_BYTES + _UNIQUE_BYTES) < 0:
            raw += _UNIQUE_BYTES + self._new_unique_key().encode() + _END_BYTES
        return raw + self._suffix_bytes

    def stored_all(self, raws: Iterable[bytes]) -> list[bytes]:
        """Return the properties to store of all messages of a batch."""
        one, end, suffix, cut = self.stored_bytes, _JAVA_END_BYTES, self._suffix_bytes, -len(_JAVA_WAIT)
        return [raw[:cut] + suffix if raw.startswith(_UNIQUE_BYTES) and raw.endswith(end) else one(raw) for raw in raws]

    def complete(self, properties: dict[str, str]) -> None:
        """Change the properties of a draft in place."""
        properties.pop("POP_CK", None)
        properties.pop("WAIT", None)
        if not properties.get("UNIQ_KEY"):
            properties["UNIQ_KEY"] = self._new_unique_key()
        properties.update(self.added)


def priority_of(properties: Mapping[str, str]) -> int:
    """Return the priority of a message, -1 for none."""
    text = properties.get(PRIORITY, "")
    return int(text) if text.isdecimal() and len(text) <= 10 else -1


def queue_by_priority(properties: dict[str, str], queue_id: int, write_queues: int) -> int:
    """Return the queue of a message: by its priority if it is of no other kind, else its priority is taken away.

    Source: RocketMQ 5.5.0 SendMessageProcessor.sendMessage, TopicMessageType.parseFromMessageProperty.
    """
    priority = priority_of(properties)
    if priority < 0:
        return queue_id
    if properties.get("TRAN_MSG") == "true" or not properties.keys().isdisjoint(_OTHER_KINDS):
        del properties[PRIORITY]
        return queue_id
    return min(priority, write_queues - 1)


def bare_key(text: str) -> str | None:
    """Return UNIQ_KEY when it is all that is said, with WAIT, as when the application sets no properties."""
    first, _, rest = text.partition(_END)
    if rest in (_JAVA_WAIT, _OTHERS_WAIT) and first.startswith(_UNIQUE) and first.count("\x01") == 1:
        return first[len(_UNIQUE) :]
    return None


def needs_draft(text: str) -> bool:
    """Return whether a message's properties have a meaning to the broker."""
    if bare_key(text) is not None:
        return False
    for name in _MEANINGFUL:  # noqa: SIM110  # any() with a generator takes three times as long
        if name in text:
            return True
    return False


def unique_key(text: str) -> str | None:
    """Return UNIQ_KEY of a properties text."""
    at = 0 if text.startswith(_UNIQUE) else text.find(_END + _UNIQUE) + 1
    if at == 0 and not text.startswith(_UNIQUE):
        return None
    start = at + len(_UNIQUE)
    end = text.find(_END, start)
    return text[start:] if end < 0 else text[start:end]


def without(text: str, name: str) -> str:
    """Return the text without the piece that begins with `name`, which ends in its separator."""
    at = 0 if text.startswith(name) else text.find(_END + name) + 1
    if at == 0 and not text.startswith(name):
        return text  # the end of another property's name
    end = text.find(_END, at)
    return text[:at] if end < 0 else text[:at] + text[end + 1 :]


def without_bytes(raw: bytes, name: bytes) -> bytes:
    """Do the same for stored properties."""
    at = 0 if raw.startswith(name) else raw.find(_END_BYTES + name) + 1
    if at == 0 and not raw.startswith(name):
        return raw
    end = raw.find(_END_BYTES, at)
    return raw[:at] if end < 0 else raw[:at] + raw[end + 1 :]


def new_unique_keys() -> Callable[[], str]:
    """Return a source of keys that no other process makes: 16 random hex digits and a counter."""
    prefix, numbers = os.urandom(8).hex().upper(), count()
    return lambda: f"{prefix}{next(numbers):016X}"
