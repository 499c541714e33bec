"""What a configuration value may be: each rule checks one value, reads it from text, and can say what it allows.

Rules are data, so that the same table drives the check of a file, `config set`, `config show` and the documentation.
"""

import ipaddress
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, cast

Value = TypeVar("Value")


class Rule(Protocol):
    """What one key may hold."""

    def read(self, value: object) -> object:
        """Return the value as the program uses it. Raises ValueError whose text continues "KEY = VALUE: "."""

    def allowed(self) -> str:
        """Say in a few words what is allowed."""


class Whole(NamedTuple):
    """A whole number from low to high."""

    low: int
    high: int

    def read(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number, {self.allowed()}")
        if not self.low <= value <= self.high:
            raise ValueError(f"allowed is {self.allowed()}")
        return value

    def allowed(self) -> str:
        return f"{self.low} to {self.high}"


class Real(NamedTuple):
    """A number from low to high, with or without a fraction."""

    low: float
    high: float

    def read(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"must be a number, {self.allowed()}")
        if not self.low <= value <= self.high:
            raise ValueError(f"allowed is {self.allowed()}")
        return float(value)

    def allowed(self) -> str:
        return f"{self.low:g} to {self.high:g}"


class Flag:
    """true or false."""

    def read(self, value: object) -> object:
        if not isinstance(value, bool):
            raise ValueError("must be true or false, without quotes")
        return value

    def allowed(self) -> str:
        return "true or false"


class Text(NamedTuple):
    """A text that matches a pattern as a whole."""

    pattern: str = r"(?s).{0,100}"
    meaning: str = "text of at most 100 characters"

    def read(self, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"must be a text in quotes: {self.meaning}")
        if not re.fullmatch(self.pattern, value):
            raise ValueError(f"allowed is {self.meaning}")
        return value

    def allowed(self) -> str:
        return self.meaning


class Choice(NamedTuple):
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, value: object) -> object:
        if value not in self.words:
            raise ValueError(f"allowed is {self.allowed()}")
        return value

    def allowed(self) -> str:
        return " or ".join(f'"{word}"' for word in self.words)


class Network:
    """An address range such as 10.1.0.0/16 or 2001:db8::/32."""

    def read(self, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"must be a text in quotes: {self.allowed()}")
        try:
            ipaddress.ip_network(value, strict=False)
        except ValueError as exc:
            raise ValueError(f"{exc}; allowed is {self.allowed()}") from exc
        return value

    def allowed(self) -> str:
        return "an address range such as 10.1.0.0/16"


class Many(NamedTuple):
    """A list whose items all follow one rule."""

    item: Rule
    most: int = 64

    def read(self, value: object) -> object:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list [...], each item {self.item.allowed()}")
        if len(value) > self.most:
            raise ValueError(f"{len(value)} items, allowed are {self.most}")
        return tuple(self.item.read(item) for item in value)

    def allowed(self) -> str:
        return f"a list, each item {self.item.allowed()}"


class Record(NamedTuple):
    """An inline table { key = value, ... } read into a named tuple; `needed` keys must be there."""

    make: type
    keys: Mapping[str, Rule]
    needed: frozenset[str] = frozenset()
    attributes: Mapping[str, str] = MappingProxyType({})  # TOML key -> attribute, where they differ

    def read(self, value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError(f"must be {self.allowed()}")
        unknown, missing = sorted(set(value) - set(self.keys)), sorted(self.needed - set(value))
        if unknown:
            raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(self.keys)}")
        if missing:
            raise ValueError(f"{missing[0]!r} is missing")
        return self.make(**{self.attributes.get(key, key): self._item(key, item) for key, item in value.items()})

    def _item(self, key: str, item: object) -> object:
        try:
            return self.keys[key].read(item)
        except ValueError as exc:
            raise ValueError(f"{key} = {item!r}: {exc}") from exc

    def allowed(self) -> str:
        return "{ " + ", ".join(f"{key} = ..." for key in self.keys) + " }"


class Key(NamedTuple):
    """What a table of the file says of one key."""

    default: object
    rule: Rule
    meaning: str


def key(default: Value, rule: Rule, meaning: str) -> Value:
    """Return the default of a table's key; `table` takes rule and meaning out of it."""
    return cast(Value, Key(default, rule, meaning))


def table(kind: type[Value]) -> type[Value]:
    """Return the named tuple with plain defaults; what its keys allow and mean is in `keys_of`."""
    made: Any = kind
    made.keys = dict(made._field_defaults)
    made.__new__.__defaults__ = tuple(each.default for each in made.keys.values())
    return kind


def keys_of(kind: type) -> Mapping[str, Key]:
    """Return name -> key of a table."""
    return cast(Any, kind).keys  # type: ignore[no-any-return]


def value_from_text(rule: Rule, text: str) -> object:
    """Return what an environment variable or `config set KEY=TEXT` means under a rule. Raises ValueError."""
    if isinstance(rule, Text | Choice | Network):
        return rule.read(text)
    import tomllib  # a box without a file and settings of its own reads none

    try:
        parsed: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as exc:
        raise ValueError(f"allowed is {rule.allowed()}") from exc
    return rule.read(parsed)
