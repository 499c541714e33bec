"""Messages of the consensus core as frames, bytes of the log behind an Append. Sans I/O.

An Append whose bytes end with the head of a segment's blank covers the blank: its length is that of the log range.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from appliance.group.links.frames import APPEND_FETCHED, MESSAGES, MOST_TEXT, LinkFrame, encode_frame, typed
from storage_driver.consensus import messages as m
from storage_driver.consensus.members import (
    CONFIGS_KEPT,
    MOST_ADDRESS_BYTES,
    MOST_ID_BYTES,
    MOST_MEMBERS,
    Members,
    MembersAt,
    check_members,
)
from storage_driver.consensus.terms import ROWS_KEPT, Row, are_rising
from storage_driver.crc import crc32
from storage_driver.errors import ConsensusRefused
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK
from uplink_spark.errors import PieceDamaged, ProtocolError
from uplink_spark.wire.cbor import Fields

_IN_ORDER: Final = (
    *(m.PreVote, m.PreVoteReply, m.Vote, m.VoteReply, m.LeaderHeartbeat, m.FollowerReply, m.Position, m.Match),
    *(m.Unrelated, m.Append, m.Synced, m.WitnessRow, m.WitnessSynced, m.CampaignNow, m.Outdated),
)
KINDS: Final[Mapping[type[Any], int]] = {kind: MESSAGES + at for at, kind in enumerate(_IN_ORDER)}
_CLASSES: Final[Mapping[int, type[Any]]] = {
    **{number: kind for kind, number in KINDS.items()},
    APPEND_FETCHED: m.Append,
}
APPEND: Final = KINDS[m.Append]


class _Codec(NamedTuple):
    """How the value of a field goes into CBOR, and comes back."""

    pack: Callable[[Any], object]
    unpack: Callable[[Fields, str], Any]


def _pack_config(config: MembersAt) -> list[object]:
    return [config.start + 1, *map(list, config.members)]


def _unpack_configs(fields: Fields, key: str) -> tuple[MembersAt, ...]:
    rows: list[list[Any]] = fields.rows(key, int, list, list, list, list)
    if len(rows) > CONFIGS_KEPT:
        raise PieceDamaged(f"{key}: {len(rows)} rows, at most {CONFIGS_KEPT} are allowed")
    configs = tuple(
        MembersAt(at - 1, Members(_names(boxes), _names(witnesses), _names(learners), _addresses(later)))
        for at, boxes, witnesses, learners, later in rows
    )
    try:
        for config in configs:
            check_members(config.members)
    except ConsensusRefused as exc:
        raise PieceDamaged(f"{key}: {exc}") from exc
    return configs


def _names(value: list[object]) -> tuple[str, ...]:
    return _texts(value, MOST_ID_BYTES)


def _addresses(value: list[object]) -> tuple[str, ...]:
    return _texts(value, MOST_ADDRESS_BYTES)


def _texts(value: list[object], most: int) -> tuple[str, ...]:
    texts = [text for text in value if type(text) is str and 0 < len(text.encode()) <= most]
    if len(texts) != len(value) or len(texts) > MOST_MEMBERS:
        raise PieceDamaged("what should be ids or addresses of members is not")
    return tuple(texts)


def _unpack_rows(fields: Fields, key: str) -> tuple[Row, ...]:
    rows = tuple(Row(term, start) for term, start in fields.pairs(key))
    if len(rows) > ROWS_KEPT or not are_rising(rows):
        raise PieceDamaged(f"{key}: {len(rows)} rows that are not a term table")
    return rows


_WHOLE: Final = _Codec(int, lambda fields, key: fields.uint(key))
_FLAG: Final = _Codec(int, lambda fields, key: bool(fields.uint(key, most=1)))
_FROM_MINUS_ONE: Final = _Codec(lambda value: value + 1, lambda fields, key: fields.uint(key) - 1)
_OTHERS: Final[Mapping[str, _Codec]] = {
    "granted": _FLAG,
    "transfer": _FLAG,
    "filling": _FLAG,
    **dict.fromkeys(("shipped", "synced"), _FROM_MINUS_ONE),
    "sent_s": _Codec(lambda value: int(value * 1e6), lambda fields, key: fields.uint(key) / 1e6),
    "rows": _Codec(lambda rows: [list(row) for row in rows], _unpack_rows),
    "configs": _Codec(lambda configs: [_pack_config(config) for config in configs], _unpack_configs),
    "crc": _Codec(int, lambda fields, key: fields.uint(key, most=(1 << 32) - 1)),
    "reason": _Codec(lambda text: text[:MOST_TEXT], lambda fields, key: fields.text(key)[:MOST_TEXT]),
}


def encode_message(message: m.Message, data: bytes = b"") -> bytes:
    """Return the frame of a message; only an Append has bytes."""
    return encode_frame(KINDS[type(message)], _head_of(message), data)


def encode_fetched(append: m.Append) -> bytes:
    """Return the frame of an Append whose bytes the follower has fetched."""
    return encode_frame(APPEND_FETCHED, _head_of(append))


def _head_of(message: m.Message) -> dict[str, object]:
    return {name: _OTHERS.get(name, _WHOLE).pack(value) for name, value in message._asdict().items()}


def decode_message(frame: LinkFrame) -> m.Message:
    """Return the message. Raises ProtocolError, also where the bytes of an Append are not those that were sent."""
    kind = _CLASSES.get(frame.kind)
    if kind is None:
        raise ProtocolError(f"a frame of type {frame.kind:#04x} is not known")
    fields = frame.fields(kind.__name__)
    message: m.Message = typed(
        kind.__name__, lambda: kind(*[_OTHERS.get(name, _WHOLE).unpack(fields, name) for name in kind._fields])
    )
    if isinstance(message, m.Append) and frame.kind == APPEND:
        _check_bytes(message, frame.data)
    return message


def _check_bytes(append: m.Append, data: bytes) -> None:
    if crc32(data) != append.crc:
        raise ProtocolError(f"the bytes of the append at {append.start} were changed on their way")
    blank = append.length - len(data) + BLANK_BYTES
    if not data or (len(data) != append.length and data[-BLANK_BYTES:] != _blank_head(blank)):
        raise ProtocolError(f"an append of {append.length} bytes at {append.start} came with {len(data)}")


def _blank_head(size: int) -> bytes:
    return BLANK.pack(size, MAGIC_BLANK) if BLANK_BYTES < size < 1 << 31 else b""
