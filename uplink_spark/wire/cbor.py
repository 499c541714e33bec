"""Deterministic CBOR (RFC 8949 4.2.1) as both sides of the uplink speak it: one byte string for one value.

Whatever does not encode back to exactly the bytes that came in is damage: trailing bytes, long integers, unsorted or
double keys, floats, tags and indefinite lengths all end there.
"""

from __future__ import annotations

import cbor2

from uplink_spark.errors import PieceDamaged

MAX_DEPTH = 4
MOST_ITEMS = 20_000  # in one map: a gap names at most 2,000 queues
HOSTILE = (  # whatever hostile bytes make decoder or encoder raise is damage
    cbor2.CBORError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


def _no_tag(decoder: object) -> object:
    """Refuse before the tag's value is made: one that repeats strings turns 60 KB into 300 MB when it is written."""
    raise ValueError("a tag")


NO_TAGS = dict.fromkeys(  # all that cbor2 knows; what it does not know comes out as a CBORTag, which is not plain
    (*range(6), 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799), _no_tag
)


def encode_map(value: dict[str, object]) -> bytes:
    """Return the one encoding of a map with text keys; keys whose value is None are left out."""
    return cbor2.dumps({key: item for key, item in value.items() if item is not None}, canonical=True)


def decode_map(data: bytes, *, most: int = MOST_ITEMS) -> dict[str, object]:
    """Return the map in data, which must be its only and shortest encoding. Raises PieceDamaged."""
    try:
        value = cbor2.loads(
            data,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            max_depth=MAX_DEPTH,
            semantic_decoders=NO_TAGS,  # type: ignore[arg-type]
            strict_hashable_types=True,  # numbers can be chosen to have one hash
        )
    except HOSTILE as error:
        raise PieceDamaged(f"CBOR: {type(error).__name__}: {error}"[:200]) from error
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise PieceDamaged("CBOR: not a map with text keys")
    _only_plain(value, 0, most)
    try:
        same = cbor2.dumps(value, canonical=True) == data
    except HOSTILE as error:
        raise PieceDamaged(f"CBOR: {type(error).__name__}: {error}"[:200]) from error
    if not same:
        raise PieceDamaged("CBOR: not the deterministic encoding")
    return value


def _only_plain(value: object, depth: int, left: int) -> int:
    """Return how many more items there may be after these."""
    kind = type(value)
    if depth > MAX_DEPTH:
        raise PieceDamaged("CBOR: nested too deep")
    left -= 1
    if left < 0:
        raise PieceDamaged("CBOR: too many items")
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) is not str:
                raise PieceDamaged("CBOR: a key that is not a string")
            left = _only_plain(item, depth + 1, left)
    elif kind is list:
        for item in value:  # type: ignore[attr-defined]
            left = _only_plain(item, depth + 1, left)
    elif kind not in (int, str, bytes):
        raise PieceDamaged(f"CBOR: {kind.__name__} is not allowed")
    return left


class Fields:
    """Typed access to a decoded map: each getter raises PieceDamaged with the key's name."""

    def __init__(self, values: dict[str, object], what: str) -> None:
        self.values, self._what = values, what

    def _fault(self, key: str, wanted: str) -> PieceDamaged:
        return PieceDamaged(f"{self._what}: {key} is not {wanted}")

    def uint(self, key: str, default: int | None = None, *, most: int = (1 << 63) - 1) -> int:
        value = self.values.get(key, default)
        if type(value) is not int or not 0 <= value <= most:
            raise self._fault(key, f"an integer in 0..{most}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key, default)
        if type(value) is not str:
            raise self._fault(key, "a text")
        return value

    def octets(self, key: str, length: int | None = None) -> bytes:
        value = self.values.get(key)
        if type(value) is not bytes or (length is not None and len(value) != length):
            raise self._fault(key, f"a byte string of {length} bytes")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if type(value) is not list or not all(type(item) is str for item in value):
            raise self._fault(key, "an array of texts")
        return tuple(value)

    def rows(self, key: str, *kinds: type) -> list[list[object]]:
        """An array of arrays whose members have exactly these types; integers are unsigned."""
        value = self.values.get(key, [])
        if type(value) is not list:
            raise self._fault(key, "an array")
        for row in value:
            if type(row) is not list or len(row) != len(kinds):
                raise self._fault(key, f"an array of {len(kinds)}-item arrays")
            for item, kind in zip(row, kinds, strict=True):
                if type(item) is not kind or (isinstance(item, int) and not 0 <= item < 1 << 63):
                    raise self._fault(key, f"an array of {[kind.__name__ for kind in kinds]}")
        return value

    def pairs(self, key: str) -> list[tuple[int, int]]:
        return [(int(str(a)), int(str(b))) for a, b in self.rows(key, int, int)]
