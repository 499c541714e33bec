"""From the ext fields of a header to a value and back: what all classes of `headers` have in common.

A field named `queue_id: int` is `queueId` on the wire, another spelling is `Annotated[int, "spelling"]`. A field
without a default is required. An empty string counts as absent: some clients send it, and the binary form cannot
tell; only required text may be empty. `Int32` is a number that Java keeps in 32 bits, a plain int has 64.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from netstack.errors import Refused
from netstack.lazy import made
from netstack.wire.codes import ResponseCode

Int32 = Annotated[int, 32]
INT32, INT64 = range(-(1 << 31), 1 << 31), range(-(1 << 63), 1 << 63)


def to_int32(text: str) -> int:
    if (number := int(text)) not in INT32:
        raise ValueError(text)
    return number


def to_int64(text: str) -> int:
    if (number := int(text)) not in INT64:
        raise ValueError(text)
    return number


def to_bool(text: str) -> bool:
    return text.lower() == "true"  # as Java's parseBoolean: everything else is false


def bool_text(value: bool) -> str:
    return "true" if value else "false"


_READ: dict[Any, tuple[Callable[[str], Any], str]] = {
    str: (str, "text"),
    int: (to_int64, "a 64 bit number"),
    Int32: (to_int32, "a 32 bit number"),
    bool: (to_bool, "true or false"),
}
_WRITE: dict[Any, Callable[[Any], str]] = {str: str, int: str, Int32: str, bool: bool_text}


def missing(header: type, name: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"{header.__name__}: the required field {name} is missing in extFields")


def malformed(header: type, name: str, text: str, kind: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"{header.__name__}: field {name} is {text[:60]!r}, expected {kind}")


class Field(NamedTuple):
    """One field of a header class."""

    attribute: str
    wire: str
    kind: Any
    required: bool


def _fields_of(header: type) -> tuple[Field, ...]:
    hints, found = get_type_hints(header, include_extras=True), []
    for item in dataclasses.fields(made(header)):
        kind, notes = _kind_and_notes(hints[item.name])
        first, *rest = item.name.split("_")
        spelled = next((note for note in notes if isinstance(note, str)), first + "".join(map(str.capitalize, rest)))
        found.append(Field(item.name, spelled, Int32 if 32 in notes else kind, item.default is dataclasses.MISSING))
    return tuple(found)


fields_of: Callable[[type], tuple[Field, ...]] = cache(_fields_of)


def wire_names(header: type) -> list[tuple[str, bool]]:
    """Return the name on the wire of each field, and whether it is required; also of `message_headers`."""
    names: tuple[str, ...] = getattr(header, "WIRE", ())
    if names:
        return [(name, at < getattr(header, "REQUIRED", 0)) for at, name in enumerate(names)]
    return [(item.wire, item.required) for item in fields_of(header)]


def _kind_and_notes(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return str, int or bool and what the annotations around it say."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        kind, more = _kind_and_notes(inner)
        return kind, (*notes, *more)
    if get_origin(hint) in (Union, UnionType):
        return _kind_and_notes(next(part for part in get_args(hint) if part is not type(None)))
    return hint, ()


class ExtHeader:
    """A frozen dataclass of str, int, bool and float that travels as ext fields."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """Return the header these fields mean; unknown ones are ignored. Raises Refused naming the field at fault."""
        values: dict[str, Any] = {}
        for item in fields_of(cls):
            text = ext.get(item.wire)
            if text:
                read, kind = _READ[item.kind]
                try:
                    values[item.attribute] = read(text)
                except ValueError:
                    raise malformed(cls, item.wire, text, kind) from None
            elif item.required:
                if text is None or item.kind is not str:
                    raise missing(cls, item.wire)
                values[item.attribute] = text
        return cls(**values)

    def to_ext(self) -> dict[str, str]:
        """Return the fields that are set, as text."""
        return {
            item.wire: _WRITE[item.kind](value)
            for item in fields_of(type(self))
            if (value := getattr(self, item.attribute)) is not None
        }
