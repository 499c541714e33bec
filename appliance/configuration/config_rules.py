"""What a configuration value may be: each rule checks one value, reads it from text, and can say what it allows.

Rules are data, so that the same table drives the check of a file, `config set`, `config show` and the documentation.
"""

import ipaddress
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, Protocol, Self, TypeVar, cast

from storage_driver.named_tuple import NamedTuple

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
            raise ValueError(f"must be {self.allowed()}")
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
            raise ValueError(f"must be {self.allowed()}")
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
            raise ValueError(f"must be a string in quotes: {self.meaning}")
        if not re.fullmatch(self.pattern, value):
            raise ValueError(f"must be {self.meaning}")
        return value

    def allowed(self) -> str:
        return self.meaning


class Choice(NamedTuple):
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, value: object) -> object:
        if value not in self.words:
            raise ValueError(f"must be {self.allowed()}")
        return value

    def allowed(self) -> str:
        return " or ".join(f'"{word}"' for word in self.words)


class Network:
    """An address range such as 10.1.0.0/16 or 2001:db8::/32."""

    def read(self, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"must be a string in quotes: {self.allowed()}")
        try:
            ipaddress.ip_network(value, strict=False)
        except ValueError as exc:
            raise ValueError(f"{exc}; allowed: {self.allowed()}") from exc
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
            raise ValueError(f"{len(value)} items, at most {self.most} are allowed")
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
            raise ValueError(f"unknown key {unknown[0]!r}; known keys: {', '.join(self.keys)}")
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
    """Return what a `Section` gives the key; a value of the table is what has the type of the default."""
    return cast(Value, Key(default, rule, meaning))


class Section:
    """One table of the file, each key as `name: type = key(default, rule, meaning)`; a value of it does not change."""

    keys: ClassVar[Mapping[str, Key]]

    def __init_subclass__(cls) -> None:
        cls.keys = {name: vars(cls)[name] for name in cls.__annotations__}

    def __init__(self, **values: object) -> None:
        if unknown := values.keys() - self.keys.keys():
            raise TypeError(f"{type(self).__name__} has no {sorted(unknown)}")
        vars(self).update({name: each.default for name, each in self.keys.items()}, **values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} does not change")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def changed(self, **values: object) -> Self:
        """Return the table with other values for these keys."""
        return type(self)(**{**vars(self), **values})


def value_from_text(rule: Rule, text: str) -> object:
    """Return what an environment variable or `config set KEY=TEXT` means under a rule. Raises ValueError."""
    if isinstance(rule, Text | Choice | Network):
        return rule.read(text)
    import tomllib  # a box without a file and settings of its own reads none

    try:
        parsed: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as exc:
        raise ValueError(f"must be {rule.allowed()}") from exc
    return rule.read(parsed)
