"""The options of the `commitlog` data source: text in, checked values out, every mistake named on the driver."""

from __future__ import annotations

import difflib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from uplink_spark.errors import ConfigError
from uplink_spark.spark.fields import KINDS
from uplink_spark.spark.rows import COLUMNS, EXTRA, RowSelection
from uplink_spark.zone.files import has_key, shown

MIB = 1 << 20
LATEST = -1
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SPAN_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH = re.compile(r"[0-9a-fA-F]{1,16}")
CONSUMER_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class OptionError(ConfigError):
    """An option of the data source cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where to begin or end: exactly one of seqs, landed_ms, latest; `latest` is the end at planning."""

    seqs: dict[int, int] | None = None  # by shard; LATEST = the end
    stamp: dict[str, Any] | None = None  # what they came with, if they are a stream's (stamp.py)
    landed_ms: int | None = None
    latest: bool = False


EARLIEST = SourcePosition(seqs={})


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader asked for."""

    path: str
    view: RowSelection
    boxes: frozenset[str] | None = None
    start: SourcePosition = EARLIEST
    end: SourcePosition = SourcePosition(latest=True)
    log_offsets: dict[str, tuple[str | None, int]] = field(default_factory=dict)  # box -> (epoch or None, offset)
    max_bytes: int | None = None
    max_rows: int | None = None
    max_pieces: int | None = None
    min_bytes: int = 0
    max_delay_s: float = 0.0
    partition_bytes: int = 64 * MIB
    consumer: str | None = None
    fail_on_loss: bool = True
    pruned: dict[str, tuple[int, int]] = field(default_factory=dict)  # column -> lowest and highest value wanted


def _option_error(name: str, value: str, wanted: str) -> OptionError:
    return OptionError(f"option {name} = {value!r}: {wanted}")


def _listed(name: str, value: str) -> list[str]:
    """Return words that commas divide, or the strings of a JSON list."""
    if not value.lstrip().startswith("["):
        return [word.strip() for word in value.split(",") if word.strip()]
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise _option_error(name, value, 'a JSON list holds strings, as in ["a", "b"]')
    return found


def _words(name: str, value: str) -> frozenset[str]:
    words = frozenset(_listed(name, value))
    if not words:
        raise _option_error(name, value, "name at least one, separated by commas")
    return words


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise _option_error(name, value, "use true or false")
    return value.lower() == "true"


def _size(name: str, value: str) -> int:
    found = _SIZE.fullmatch(value.strip())
    if not found or not int(found[1]):
        raise _option_error(name, value, "use a number of bytes above 0, as 268435456 or 256m")
    return int(found[1]) << (10 * " kmgt".index(found[2].lower() or " "))


def _count(name: str, value: str) -> int:
    if not value.strip().isdigit() or not int(value):
        raise _option_error(name, value, "use a whole number above 0")
    return int(value)


def _seconds(name: str, value: str) -> float:
    found = _SPAN.fullmatch(value.strip())
    if not found:
        raise _option_error(name, value, "use a time span as 500ms, 10s or 15m")
    return float(found[1]) * _SPAN_MS[found[2]] / 1000


def parse_time(name: str, value: str, now_ms: int) -> int:
    """Return milliseconds since 1970 of an ISO time (UTC without zone), milliseconds, or `-15m` before now."""
    text = value.strip()
    if text.startswith("-") and (span := _SPAN.fullmatch(text[1:])):
        return now_ms - round(float(span[1]) * _SPAN_MS[span[2]])
    if text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise _option_error(name, value, "use 2026-11-03T07:00:00Z, milliseconds since 1970, or -15m") from None
    since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return since // timedelta(milliseconds=1)


def _seqs(name: str, value: str) -> SourcePosition:
    if value in ("earliest", "latest"):
        return EARLIEST if value == "earliest" else SourcePosition(latest=True)
    wanted = 'use earliest, latest or JSON by manifest shard, as {"0": 1234} (-1: the end, -2: the beginning)'
    try:
        found = json.loads(value)
    except ValueError:
        raise _option_error(name, value, wanted) from None
    stamp = found if isinstance(found, dict) and "zone" in found else None  # a stream's own offset, as it logs it
    seqs = {key: seq for key, seq in stamp.items() if key not in ("zone", "last")} if stamp else found
    last = stamp.get("last", {}) if stamp else {}
    good = isinstance(seqs, dict) and all(
        shard.isdigit() and type(seq) is int and seq >= -2 for shard, seq in seqs.items()
    )
    good = good and isinstance(last, dict) and last.keys() <= seqs.keys()
    if not good:
        raise _option_error(name, value, wanted)
    return SourcePosition(seqs={int(shard): 0 if seq == -2 else seq for shard, seq in seqs.items()}, stamp=stamp)


def _log_offsets(name: str, value: str) -> dict[str, tuple[str | None, int]]:
    wanted = (
        'use JSON by box, as {"box-17": {"epoch": "3f9c1a02", "offset": 4096}}; epoch is the number of the column, or '
        "its hexadecimal digits as text, of which a prefix is enough"
    )
    try:
        return {box: (_epoch(at.get("epoch")), int(at["offset"])) for box, at in json.loads(value).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _option_error(name, value, wanted) from None


def _epoch(given: str | int | None) -> str | None:
    """Return the hexadecimal digits of an epoch or the first of them, None for any. Raises ValueError, TypeError."""
    if given is None:
        return None
    if isinstance(given, int):
        return f"{given:016x}"
    if not _EPOCH.fullmatch(given):
        raise ValueError(given)
    return given.lower()


def _columns(name: str, value: str) -> tuple[str, ...]:
    if value.strip() == "*":
        return COLUMNS
    wanted = _listed(name, value)
    known = (*COLUMNS, *EXTRA)
    unknown = [word for word in wanted if word not in known]
    if unknown or not wanted or len(set(wanted)) < len(wanted):
        why = f"{' and '.join(unknown)}: no such column; " if unknown else ""
        raise _option_error(name, value, f"{why}name each column once, out of: {', '.join(known)}")
    return tuple(wanted)


def _kinds(name: str, value: str) -> frozenset[str] | None:
    if value.strip() == "all":
        return None
    words = _words(name, value)
    if unknown := sorted(words - set(KINDS)):
        raise _option_error(name, value, f"{unknown[0]!r} is not a kind; use all or some of: {', '.join(KINDS)}")
    return words


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise _option_error(name, value, f"not a Python regular expression: {error}") from None
    return f"^(?:{value})$"  # the whole name, as subscribePattern of the Kafka source


def _properties(name: str, value: str) -> bool:
    if value not in ("map", "string"):
        raise _option_error(name, value, "use map or string")
    return value == "map"


def _consumer(name: str, value: str) -> str:
    if not CONSUMER_NAME.fullmatch(value):
        raise _option_error(name, value, "1 to 64 of A-Z a-z 0-9 . _ -, not beginning with a dot")
    return value


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise _option_error(name, value, "it must not be empty")
    return value


def _place(name: str, value: str) -> str:
    """Return where the landing zone is: a folder by its whole path, since tasks run in other folders."""
    if has_key(value):
        told = (
            "credentials do not belong into a URL, which plans and logs show; give them by environment, profile or role"
        )
        raise OptionError(f"option {name} = {shown(value)}: {told}")
    return value if ":" in value else os.path.abspath(_text(name, value))


Parse = Callable[[str, str], Any]
BOTH, BATCH, STREAM = "batch and stream", "batch", "stream"
OPTIONS: dict[str, tuple[str, Parse]] = {
    "path": (BOTH, _place),
    "columns": (BOTH, _columns),
    "boxes": (BOTH, _words),
    "topics": (BOTH, _words),
    "topicPattern": (BOTH, _pattern),
    "tags": (BOTH, _words),
    "include": (BOTH, _kinds),
    "raw": (BOTH, _flag),
    "systemTopics": (BOTH, _words),
    "inflate": (BOTH, _flag),
    "checkBodyCrc": (BOTH, _flag),
    "propertiesAs": (BOTH, _properties),
    "startingOffsets": (BOTH, _seqs),
    "endingOffsets": (BATCH, _seqs),
    "startingTimestamp": (BOTH, _text),
    "endingTimestamp": (BATCH, _text),
    "startingLogOffsets": (BATCH, _log_offsets),
    "storeSince": (BOTH, _text),
    "storeUntil": (BOTH, _text),
    "maxBytesPerTrigger": (STREAM, _size),
    "maxRowsPerTrigger": (STREAM, _count),
    "maxPiecesPerTrigger": (STREAM, _count),
    "minBytesPerTrigger": (STREAM, _size),
    "maxTriggerDelay": (STREAM, _seconds),
    "partitionBytes": (BOTH, _size),
    "consumer": (BOTH, _consumer),
    "failOnDataLoss": (BOTH, _flag),
}
TIMES = frozenset(("startingTimestamp", "endingTimestamp", "storeSince", "storeUntil"))
MANIFEST_OPTIONS = frozenset(
    ("path", "boxes", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "consumer",
     "maxBytesPerTrigger", "maxRowsPerTrigger", "maxPiecesPerTrigger", "minBytesPerTrigger", "maxTriggerDelay",
     "partitionBytes", "failOnDataLoss")
)  # fmt: skip
_KNOWN = {name.lower(): name for name in OPTIONS}
_KAFKA = {  # what its users type first
    "subscribe": "topics",
    "subscribepattern": "topicPattern",
    "assign": "boxes",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "minoffsetspertrigger": "minBytesPerTrigger",
    "minpartitions": "partitionBytes",
    "kafka.bootstrap.servers": "path",
    "kafka.group.id": "consumer",
}


def parse_options(
    given: Mapping[str, str],
    *,
    known: frozenset[str] = frozenset(OPTIONS),
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> SourceOptions:
    """Return the checked options. Raises OptionError; names are not case-sensitive, as everywhere in Spark."""
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = _KNOWN.get(key.lower())
        if name is None or name not in known:
            names = [name for name in OPTIONS if name in known]
            raise OptionError(f"option {key} is not known{_meant(key, names)}; known options: {', '.join(names)}")
        values[name] = parse_time(name, value, now_ms()) if name in TIMES else OPTIONS[name][1](name, value)
    if "path" not in values:
        raise OptionError("option path is missing: give the folder or URL of the landing zone, as .load('/landing')")
    _check_together(values)
    return _built(values)


def _meant(key: str, names: list[str]) -> str:
    """Return ", did you mean ...?" for the Kafka source's name of an option or the nearest known one, or nothing."""
    near = difflib.get_close_matches(key.lower(), [name.lower() for name in names], n=1)
    found = _KAFKA.get(key.lower()) or (_KNOWN[near[0]] if near else None)
    return f", did you mean {found}?" if found in names else ""


def _check_together(values: Mapping[str, Any]) -> None:
    for group in (
        ("startingOffsets", "startingTimestamp", "startingLogOffsets"),
        ("endingOffsets", "endingTimestamp"),
        ("maxBytesPerTrigger", "maxRowsPerTrigger", "maxPiecesPerTrigger"),
        ("topics", "topicPattern"),
    ):
        used = [name for name in group if name in values]
        if len(used) > 1:
            raise OptionError(f"options {' and '.join(used)} exclude one another: give one of them")
    for first, last in (("startingTimestamp", "endingTimestamp"), ("storeSince", "storeUntil")):
        if first in values and last in values and values[first] > values[last]:
            raise OptionError(f"option {first} is later than {last}: start is after end, no row matches")
    if "minBytesPerTrigger" in values and not values.get("maxTriggerDelay"):
        raise OptionError("option minBytesPerTrigger needs maxTriggerDelay: how long may data wait for more?")
    if values.get("raw") and "include" in values:
        raise OptionError("options raw and include exclude one another: raw = true is every record as stored")


def _built(values: Mapping[str, Any]) -> SourceOptions:
    view = RowSelection(
        columns=values.get("columns", COLUMNS),
        include=values.get("include", frozenset(("message",))),
        topics=values.get("topics"),
        topic_pattern=values.get("topicPattern"),
        tags=values.get("tags"),
        store_since_ms=values.get("storeSince"),
        store_until_ms=values.get("storeUntil"),
        raw=values.get("raw", False),
        inflate=values.get("inflate", True),
        check_body_crc=values.get("checkBodyCrc", False),
        properties_as_map=values.get("propertiesAs", True),
        system_topics=values.get("systemTopics", frozenset()),
    )
    limited = any(name in values for name in ("maxRowsPerTrigger", "maxPiecesPerTrigger"))
    return SourceOptions(
        path=values["path"],
        view=view,
        boxes=values.get("boxes"),
        start=_position(values, "starting", EARLIEST),
        end=_position(values, "ending", SourcePosition(latest=True)),
        log_offsets=values.get("startingLogOffsets", {}),
        max_bytes=values.get("maxBytesPerTrigger", None if limited else 256 * MIB),
        max_rows=values.get("maxRowsPerTrigger"),
        max_pieces=values.get("maxPiecesPerTrigger"),
        min_bytes=values.get("minBytesPerTrigger", 0),
        max_delay_s=values.get("maxTriggerDelay", 0.0),
        partition_bytes=values.get("partitionBytes", 64 * MIB),
        consumer=values.get("consumer"),
        fail_on_loss=values.get("failOnDataLoss", True),
    )


def _position(values: Mapping[str, Any], prefix: str, otherwise: SourcePosition) -> SourcePosition:
    if f"{prefix}Timestamp" in values:
        return SourcePosition(landed_ms=values[f"{prefix}Timestamp"])
    position: SourcePosition = values.get(f"{prefix}Offsets", otherwise)
    return position


def check_mode(given: Mapping[str, str], mode: str) -> None:
    """Raise OptionError for an option that means nothing in this mode (BATCH or STREAM)."""
    for key in given:
        name = _KNOWN[key.lower()]
        if OPTIONS[name][0] not in (BOTH, mode):
            raise OptionError(f"option {name} is for a {OPTIONS[name][0]} query, this is a {mode} query: leave it out")
