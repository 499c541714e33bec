"""The JSON dialect of Java's fastjson: read leniently, write compactly.

Beyond standard JSON it reads unquoted keys, whole objects as keys (the form of maps keyed by MessageQueue),
single-quoted strings, `$ref` back references, lone surrogates and bad UTF-8. Keys come out as str, object keys as
sorted tuples of their items. Source: fastjson 1.2.69 and 1.2.83, whose output the specification prints.
"""

import re
from collections.abc import Iterable
from typing import Any

import orjson

from netstack.errors import ProtocolError

MAX_DEPTH = 64
MOST_LENIENT = 4 << 20
_SPACE = re.compile(r"[\s\ufeff]*")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"|' + r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_BARE = re.compile(r"[^\s:,{}\[\]\"']+")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_WORDS = {"null": None, "true": True, "false": False, "NaN": None, "undefined": None}
_STEP = re.compile(r"\.((?:[^.\[\]\\]|\\.)+)|\[(\d+)\]|\[[\"'](.*?)[\"']\]")


def loads(data: bytes, most_lenient: int = MOST_LENIENT) -> Any:
    """Return dict, list, str, int, float, bool or None. Raises ProtocolError on what fastjson would not read either.

    What is no standard JSON is read slowly, some 2 µs a byte, and only up to most_lenient bytes.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        if len(data) > most_lenient:
            text = f"JSON: {exc}; of what is no standard JSON up to {most_lenient} bytes are read, not {len(data)}"
            raise ProtocolError(text) from exc
        value = _Reader(data.decode("utf-8", "replace")).document()
    if b'"$ref"' in data:
        value = _resolved(value)
    return value


def dumps(value: object) -> bytes:
    """Return compact JSON, text raw in UTF-8; lone surrogates become the replacement character."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_encodable(value), default=str)


def object_map(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return {key:value,...} of encoded keys and values: the raw form of maps keyed by objects, which is not JSON."""
    return b"{" + b",".join(key + b":" + value for key, value in items) + b"}"


class _Reader:
    """Recursive descent over one document; only texts that orjson refuses come here."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def document(self) -> Any:
        value = self._value(0)
        if self._peek():
            raise self._wrong("text after the end")
        return value

    def _wrong(self, what: str) -> ProtocolError:
        return ProtocolError(f"JSON: {what} at character {self._at} of {len(self._text)}")

    def _peek(self) -> str:
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # matches the empty string
        return self._text[self._at : self._at + 1]

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._wrong(f"{mark!r} expected")
        self._at += 1

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._wrong(f"deeper than {MAX_DEPTH} levels")
        match self._peek():
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case '"' | "'":
                return self._string()
        return self._scalar()

    def _object(self, depth: int) -> dict[Any, Any]:
        self._at += 1
        found: dict[Any, Any] = {}
        while (mark := self._peek()) != "}":
            if mark == ",":
                self._at += 1
                continue
            key = self._key(depth)
            self._expect(":")
            found[key] = self._value(depth + 1)
            if self._peek() not in (",", "}"):
                raise self._wrong("',' or '}' expected")
        self._at += 1
        return found

    def _key(self, depth: int) -> Any:
        match self._peek():
            case "{":
                return _hashable(self._value(depth + 1))
            case '"' | "'":
                return self._string()
        bare = _BARE.match(self._text, self._at)
        if bare is None:
            raise self._wrong("key expected")
        self._at = bare.end()
        return bare[0]

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        found = []
        while (mark := self._peek()) != "]":
            if mark == ",":
                self._at += 1
                continue
            found.append(self._value(depth + 1))
            if self._peek() not in (",", "]"):
                raise self._wrong("',' or ']' expected")
        self._at += 1
        return found

    def _string(self) -> str:
        quoted = _STRING.match(self._text, self._at)
        if quoted is None:
            raise self._wrong("string without an end")
        self._at = quoted.end()
        raw: str = quoted[1] if quoted[1] is not None else quoted[2]
        if "\\" not in raw:
            return raw
        return _without_surrogates(_ESCAPE.sub(_unescape, raw))

    def _scalar(self) -> Any:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            if len(number[0]) > 400:
                raise self._wrong("number too long")
            self._at = number.end()
            return float(number[0]) if number[1] or number[2] else int(number[0])
        word = _BARE.match(self._text, self._at)
        if word is None or word[0] not in _WORDS:
            raise self._wrong("value expected")
        self._at = word.end()
        return _WORDS[word[0]]


def _unescape(escape: re.Match[str]) -> str:
    mark = escape[1]
    if len(mark) > 1:
        return chr(int(mark[1:], 16))
    return _ESCAPED.get(mark, mark)


def _without_surrogates(text: str) -> str:
    """Pairs become the character they mean, lone halves the replacement character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _encodable(value: Any, depth: int = 0) -> Any:
    """Return the value as orjson takes it: no half surrogates, long integers as digits.

    Raises ProtocolError for a circle of references.
    """
    if depth > MAX_DEPTH:
        raise ProtocolError(f"JSON: deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return _without_surrogates(value)
    if isinstance(value, dict):
        return {_without_surrogates(str(key)): _encodable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item, depth + 1) for item in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return orjson.Fragment(b"%d" % value)
    return value


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(((str(key), _hashable(item)) for key, item in value.items()), key=lambda item: item[0]))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _resolved(root: Any) -> Any:
    """Put the object in the place of every {"$ref": path}: $ is the root, @ the object around, .. its parent."""

    def walk(node: Any, parents: tuple[Any, ...]) -> None:
        if len(parents) > MAX_DEPTH:
            raise ProtocolError(f"JSON: deeper than {MAX_DEPTH} levels")
        pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        for key, item in pairs:
            if isinstance(item, dict) and isinstance(item.get("$ref"), str):
                node[key] = _target(item["$ref"], root, (*parents, node))
            elif isinstance(item, dict | list):
                walk(item, (*parents, node))

    if isinstance(root, dict | list):
        walk(root, ())
    return root


def _target(path: str, root: Any, parents: tuple[Any, ...]) -> Any:
    if path in ("@", ".."):
        up = 1 if path == "@" else 2
        return parents[-up] if len(parents) >= up else None
    node = root
    for name, index, quoted in _STEP.findall(path):
        key: Any = int(index) if index else re.sub(r"\\(.)", r"\1", name or quoted)
        try:
            node = node[key]
        except (KeyError, IndexError, TypeError):
            return None
    return node
