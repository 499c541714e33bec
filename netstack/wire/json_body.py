"""From a JSON body to a value and back: what all classes of `bodies` have in common.

Written as fastjson writes: compact, keys in alphabetical order, absent values left out, integer keys quoted, maps
keyed by MessageQueue in raw form. Read leniently: fields may be missing, null or unknown, numbers may be text, enums
ordinals. A field `queue_id` is `queueId` on the wire, `Annotated[int, "spelling"]` gives another name.
"""

import dataclasses
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

import orjson

from netstack.errors import ProtocolError, Refused
from netstack.lazy import made
from netstack.wire import fastjson
from netstack.wire.codes import ResponseCode

_PLAIN = (str, int, float, bool, NoneType)
_KEY = fastjson.Bounds(1024, 64, 0, 0)
_INT64 = range(-(1 << 63), 1 << 63)


class MessageQueue(NamedTuple):
    """A queue as clients name it, with its broker."""

    topic: str
    broker_name: str
    queue_id: int


NO_QUEUE = MessageQueue("", "", 0)


class Body:
    """A frozen dataclass that travels as a JSON body."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def from_bytes(cls, body: bytes, bounds: fastjson.Bounds = fastjson.FROM_PEER) -> Self:
        """Return the value; an empty body is one without any field. Raises Refused."""
        try:
            read: Self = _reader(cls)(fastjson.loads(body, bounds) if body.strip() else {})
        except (ProtocolError, _Unreadable) as exc:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{cls.__name__}: the body is not as expected: {exc}") from None
        return read

    @classmethod
    def from_server(cls, body: bytes) -> Self:
        """Return what a server answered, however large its tables are. Raises Refused."""
        return cls.from_bytes(body, fastjson.FROM_SERVER)

    def to_bytes(self) -> bytes:
        return encode(self)


class _Unreadable(Exception):
    """A value of the wrong kind; the text says where."""


def encode(value: Any) -> bytes:
    """Return the compact JSON of a body, a dict or a list of such."""
    tree = _tree(value)
    try:
        return orjson.dumps(tree)
    except orjson.JSONEncodeError:
        return fastjson.dumps(tree)


def _tree(value: Any) -> Any:
    """Return dicts, lists and scalars, in the order they are to be written."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, MessageQueue):
        return {"brokerName": value.broker_name, "queueId": value.queue_id, "topic": value.topic}
    if hasattr(value, "__dataclass_fields__"):
        body: Any = type(value)
        pairs = ((wire, getattr(value, attribute)) for wire, attribute in _spellings(body))
        return {wire: _tree(item) for wire, item in pairs if item is not None}
    if isinstance(value, dict):
        if value and isinstance(next(iter(value)), MessageQueue):
            return orjson.Fragment(fastjson.object_map((encode(key), encode(item)) for key, item in value.items()))
        return {key if type(key) is str else str(key): _tree(item) for key, item in value.items()}
    if isinstance(value, StrEnum):
        return value.value
    return [_tree(item) for item in value]


@cache
def _spellings(body: type) -> tuple[tuple[str, str], ...]:
    """Return (wire name, attribute) of a body's fields in the order of the wire names."""
    hints = get_type_hints(body, include_extras=True)
    return tuple(
        sorted((_wire_name(item.name, hints[item.name]), item.name) for item in dataclasses.fields(made(body)))
    )


def _wire_name(attribute: str, hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return str(get_args(hint)[1])
    first, *rest = attribute.split("_")
    return first + "".join(map(str.capitalize, rest))


def _make_reader(hint: Any) -> Callable[[Any], Any]:
    """Return what turns parsed JSON into a value of this type. It raises _Unreadable."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _reader(inner[0])
    if origin in (Union, UnionType):
        return _optional(_reader(next(part for part in inner if part is not NoneType)))
    if origin is tuple:
        return _sequence(_reader(inner[0]))
    if origin is dict:
        return _mapping(_key_reader(inner[0]), _reader(inner[1]))
    if isinstance(hint, type) and dataclasses.is_dataclass(made(hint)):
        return _fields(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _enumeration(hint)
    return {str: _text, int: _integer, float: _number, bool: _boolean, MessageQueue: _queue, Any: _any}[hint]


_reader: Callable[[Any], Callable[[Any], Any]] = cache(_make_reader)


def _fields(body: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(body, include_extras=True)
    readers = [
        (item.name, _wire_name(item.name, hints[item.name]), hints[item.name]) for item in dataclasses.fields(body)
    ]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Unreadable(f"{body.__name__} is {type(value).__name__}, not an object")
        found = {}
        for attribute, wire, hint in readers:
            item = value.get(wire)
            if item is not None:
                try:
                    found[attribute] = _reader(hint)(item)
                except _Unreadable as exc:
                    raise _Unreadable(f"{wire}: {exc}") from None
        try:
            return body(**found)
        except TypeError:
            absent = [wire for attribute, wire, _ in readers if attribute not in found]
            raise _Unreadable(f"{body.__name__} lacks one of {', '.join(absent)}") from None

    return read


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _sequence(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _Unreadable(f"{type(value).__name__} where a list is expected")
        return tuple(read(item) for item in value if item is not None)

    return read_all


def _mapping(read_key: Callable[[Any], Any], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_all(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _Unreadable(f"{type(value).__name__} where an object is expected")
        return {read_key(key): read(item) for key, item in value.items() if item is not None}

    return read_all


def _key_reader(hint: Any) -> Callable[[Any], Any]:
    return _queue_key if hint is MessageQueue else _reader(hint)


def _enumeration(kind: type[StrEnum]) -> Callable[[Any], Any]:
    members = list(kind)

    def read(value: Any) -> Any:
        if isinstance(value, str) and value in kind.__members__:
            return kind[value]
        ordinal = _integer(value)
        if ordinal not in range(len(members)):
            raise _Unreadable(f"{kind.__name__} {ordinal}, known: 0..{len(members) - 1}")
        return members[ordinal]

    return read


def _text(value: Any) -> str:
    return value if isinstance(value, str) else fastjson.dumps(value).decode()


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise _Unreadable(f"{str(value)[:40]!r} where a number is expected") from None
    if number not in _INT64:
        raise _Unreadable(f"{number} does not fit 64 bits")
    return number


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _Unreadable(f"{str(value)[:40]!r} where a number is expected") from None


def _boolean(value: Any) -> bool:
    return value.lower() == "true" if isinstance(value, str) else bool(value)


def _any(value: Any) -> Any:
    """Take the value as it is, provided that it can be written again: references could form a circle."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as exc:
        raise _Unreadable(f"a value that is not JSON: {exc}") from None
    return value


def _queue(value: Any) -> MessageQueue:
    if not isinstance(value, dict):
        raise _Unreadable(f"{type(value).__name__} where a queue is expected")
    topic, broker_name = value.get("topic"), value.get("brokerName")
    return MessageQueue(_text(topic or ""), _text(broker_name or ""), _integer(value.get("queueId") or 0))


def _queue_key(key: Any) -> MessageQueue:
    """A raw object as key arrives as its sorted items, in string form as text, which is standard JSON."""
    if isinstance(key, tuple):
        return _queue(dict(key))
    return _queue(fastjson.loads(key.encode(), _KEY))
