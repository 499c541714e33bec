"""Reads what fastjson takes and standard JSON does not: see `fastjson`, which loads this with the first such text."""

import re
from typing import Any

from netstack.errors import ProtocolError
from netstack.wire.json_text import MAX_DEPTH, without_surrogates

_WITHIN = -1  # in place of a size: this one is being looked into
MOST_PATH = 1024  # characters of a reference
MOST_PATHS = 64 << 10  # of all references of a text together: each element of a path is a step
_INT64 = range(-(1 << 63), 1 << 63)
_SPACE = re.compile(r"[\s\ufeff]*")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"|' + r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_BARE = re.compile(r"[^\s:,{}\[\]\"']+")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_WORDS = {"null": None, "true": True, "false": False, "NaN": None, "undefined": None}
_STEP = re.compile(r"""\.((?:[^.\[\]\\]|\\.)+)|\[(\d+)\]|\["([^"]*)"\]|\['([^']*)'\]""")
_QUOTED = re.compile(r"\\(.)")


def read(text: str) -> Any:
    """Return dict, list, str, int, float, bool or None. Raises ProtocolError."""
    return _Reader(text).document()


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
        mark = self._text[self._at : self._at + 1]
        if not mark.isspace() and mark != "\ufeff":
            return mark
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
            raise self._wrong("unterminated string")
        self._at = quoted.end()
        raw: str = quoted[1] if quoted[1] is not None else quoted[2]
        if "\\" not in raw:
            return raw
        return without_surrogates(_ESCAPE.sub(_unescape, raw))

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


def _hashable(value: Any) -> Any:
    """Return an object that is a key as its sorted items.

    Raises ProtocolError on a key inside a key, whose text would be escaped once more at each level, and on numbers
    beyond 64 bits, which can be chosen to have one hash.
    """
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ProtocolError("JSON: an object as a key inside an object that is itself a key")
        return tuple(sorted(((key, _hashable(item)) for key, item in value.items()), key=lambda item: item[0]))
    if isinstance(value, int) and value not in _INT64:
        raise ProtocolError("JSON: a number beyond 64 bits in an object that is a key")
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def resolved(root: Any, most: int) -> Any:
    """Put the object in the place of every {"$ref": path}: $ is the root, @ the object around, .. its parent.

    Objects are shared, not copied. Raises ProtocolError when a reference points to its own container, or when writing
    all of them out would take more than `most` characters and values, or following them more than MOST_PATHS.
    """
    left = MOST_PATHS

    def walk(node: Any, parents: tuple[Any, ...]) -> None:
        nonlocal left
        if len(parents) > MAX_DEPTH:
            raise ProtocolError(f"JSON: deeper than {MAX_DEPTH} levels")
        pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        for key, item in pairs:
            if isinstance(item, dict) and isinstance(path := item.get("$ref"), str):
                left -= len(path)
                if left < 0:
                    raise ProtocolError(f"JSON: references of more than {MOST_PATHS} characters together")
                node[key] = _target(path, root, (*parents, node))
            elif isinstance(item, dict | list):
                walk(item, (*parents, node))

    if isinstance(root, dict | list):
        walk(root, ())
        size = _written_size(root, {}, 0)
        if size > most:
            raise ProtocolError(f"JSON: references make {size} characters and values, at most {most} are allowed")
    return root


def _written_size(node: Any, known: dict[int, int], depth: int) -> int:
    """Return how many characters and values a tree has when every shared object is written where it is shared."""
    if isinstance(node, str):
        return 1 + len(node)
    if not isinstance(node, dict | list):
        return 1
    size = known.get(id(node))
    if size is None:
        if depth > MAX_DEPTH:
            raise ProtocolError(f"JSON: deeper than {MAX_DEPTH} levels")
        known[id(node)] = _WITHIN
        items = node.values() if isinstance(node, dict) else node
        names = sum(map(len, map(str, node))) if isinstance(node, dict) else 0
        size = known[id(node)] = 1 + names + sum(_written_size(item, known, depth + 1) for item in items)
    elif size == _WITHIN:
        raise ProtocolError("JSON: a reference points to its own container")
    return size


def _target(path: str, root: Any, parents: tuple[Any, ...]) -> Any:
    if path in ("@", ".."):
        up = 1 if path == "@" else 2
        return parents[-up] if len(parents) >= up else None
    if len(path) > MOST_PATH:
        raise ProtocolError(f"JSON: a reference of {len(path)} characters, at most {MOST_PATH} are allowed")
    node = root
    for name, index, double, single in _STEP.findall(path):
        key: Any = int(index) if index else name or double or single
        if not index and "\\" in key:
            key = _QUOTED.sub(r"\1", key)
        try:
            node = node[key]
        except (KeyError, IndexError, TypeError):
            return None
    return node
