"""The JSON dialect of Java's fastjson: read leniently, write compactly.

Beyond standard JSON it reads unquoted keys, whole objects as keys (the form of maps keyed by MessageQueue),
single-quoted strings, `$ref` back references, lone surrogates and bad UTF-8. Keys come out as str, object keys as
sorted tuples of their items. Source: fastjson 1.2.69 and 1.2.83, whose output the specification prints.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import orjson

from netstack.errors import ProtocolError
from netstack.wire.json_text import MAX_DEPTH, without_surrogates

MOST_REPEATED: Final = 1 << 20  # what references make a text grow by, in characters and values


class Bounds(NamedTuple):
    """What one text may cost: checked before it is spent."""

    bytes: int = 4 << 20
    values: int = 100_000  # each takes about 100 bytes and as many nanoseconds
    lenient: int = 8 << 10  # bytes of a text that is no standard JSON: 1 µs each, and the loop waits meanwhile
    referring: int = 10_000  # values in a text with references: each is walked over; 0: they are values like others


FROM_PEER: Final = Bounds()
FROM_SERVER: Final = Bounds(64 << 20, 10_000_000, 4 << 20)  # what a client asked for that has nothing else to do


def loads(data: bytes, bounds: Bounds = FROM_PEER) -> Any:
    """Return dict, list, str, int, float, bool or None.

    Raises ProtocolError on what fastjson would not read either, and on what is out of bounds.
    """
    refers = bounds.referring > 0 and b'"$ref"' in data
    _check(data, bounds, refers=refers)
    value, standard = None, True
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        standard = False
        if len(data) > bounds.lenient:
            text = f"JSON: {exc}; non-standard JSON is accepted up to {bounds.lenient} bytes, not {len(data)}"
            raise ProtocolError(text) from exc
    if standard and not refers:
        return value
    from netstack.wire import lenient_json  # tools send such texts, clients do not

    value = value if standard else lenient_json.read(data.decode("utf-8", "replace"))
    return lenient_json.resolved(value, len(data) + MOST_REPEATED) if refers else value


def _check(data: bytes, bounds: Bounds, *, refers: bool) -> None:
    if len(data) > bounds.bytes:
        raise ProtocolError(f"JSON of {len(data)} bytes, at most {bounds.bytes} are allowed")
    most = min(bounds.referring, bounds.values) if refers else bounds.values
    if len(data) > most and (count := values_in(data)) > most:
        with_references = " with references" if refers else ""
        raise ProtocolError(f"JSON: up to {count} values in a text{with_references}, at most {most} are allowed")


def values_in(data: bytes) -> int:
    """Return how many values a JSON text has at most, by its commas and brackets: no loop of ours looks at them."""
    return 1 + data.count(b",") + data.count(b"[") + data.count(b"{")


def dumps(value: object) -> bytes:
    """Return compact JSON, text raw in UTF-8; lone surrogates become the replacement character."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_encodable(value), default=str)


def object_map(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return {key:value,...} of encoded keys and values: the raw form of maps keyed by objects, which is not JSON."""
    return b"{" + b",".join(key + b":" + value for key, value in items) + b"}"


def _encodable(value: Any, depth: int = 0) -> Any:
    """Return the value as orjson takes it: no half surrogates, long integers as digits.

    Raises ProtocolError for a circle of references.
    """
    if depth > MAX_DEPTH:
        raise ProtocolError(f"JSON: deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        return {without_surrogates(str(key)): _encodable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item, depth + 1) for item in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return orjson.Fragment(b"%d" % value)
    return value
