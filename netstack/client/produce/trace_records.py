"""Message trace read back: the records that producers and consumers leave on the trace topic. Sans I/O.

A record's fields are joined by 0x01, records end with 0x02. Later versions append fields: what is missing stays empty.
Source: RocketMQ 4.9.8 and 5.3 TraceDataEncoder.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

KINDS = {"0": "normal", "1": "half", "2": "commit", "3": "delay"}
OUTCOMES = {"0": "success", "1": "timed out", "2": "exception", "3": "null", "4": "failed"}


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One thing that happened to a message: `sent`, `ended` (a transaction), `consumed`; times -1 when not known."""

    what: str
    message_id: str
    topic: str = ""
    group: str = ""
    client: str = ""
    began_ms: int = -1
    took_ms: int = -1
    result: str = ""
    detail: str = ""
    request: str = ""  # joins the beginning and the end of a consumption


def read_steps(body: bytes, client: str, traced_ms: int) -> Iterator[TraceEvent]:
    """Yield what the body of one trace message says; records nobody knows are passed over."""
    for text in body.decode("utf-8", "replace").split("\x02"):
        fields = text.strip("\n").split("\x01")
        read = _READERS.get(fields[0])
        if read is not None:
            yield from read(_Fields(fields), client, traced_ms)


class _Fields:
    def __init__(self, fields: list[str]) -> None:
        self.fields = fields

    def text(self, at: int) -> str:
        found = self.fields[at] if at < len(self.fields) else ""
        return "" if found == "null" else found

    def number(self, at: int) -> int:
        try:
            return int(self.text(at))
        except ValueError:
            return -1


def _published(f: _Fields, client: str, traced_ms: int) -> Iterator[TraceEvent]:
    succeeded = f.text(13) if len(f.fields) > 13 else f.text(12)
    result = "stored" if succeeded == "true" else "failed"
    kind, place = KINDS.get(f.text(11), f.text(11)), f.text(8)
    detail = f"{kind}, {max(f.number(9), 0)} bytes to {place}" if place else kind
    for message_id in f.text(5).split(","):
        yield TraceEvent("sent", message_id, f.text(4), f.text(3), client, f.number(1), f.number(10), result, detail)


def _ended(f: _Fields, client: str, traced_ms: int) -> Iterator[TraceEvent]:
    detail = "asked by the broker" if f.text(12) == "true" else ""
    result = f.text(11).removesuffix("_MESSAGE").lower()
    yield TraceEvent("ended", f.text(5), f.text(4), f.text(3), client, f.number(1), -1, result, detail)


def _consuming(f: _Fields, client: str, traced_ms: int) -> Iterator[TraceEvent]:
    times = f.number(6)
    detail = f"attempt {times + 1}" if times >= 0 else ""
    group, began_ms = f.text(3), f.number(1)
    yield TraceEvent("consumed", f.text(5), "", group, client, began_ms, -1, "no end known", detail, f.text(4))


def _consumed(f: _Fields, client: str, traced_ms: int) -> Iterator[TraceEvent]:
    ended_ms = f.number(7) if f.number(7) > 0 else traced_ms
    took_ms = f.number(3)
    result = OUTCOMES.get(f.text(6), "") if f.text(4) == "true" else OUTCOMES.get(f.text(6), "failed")
    began_ms = ended_ms - max(took_ms, 0)
    yield TraceEvent(
        "consumed", f.text(2), "", f.text(8), client, began_ms, took_ms, result or "success", "", f.text(1)
    )


_READERS = {"Pub": _published, "EndTransaction": _ended, "SubBefore": _consuming, "SubAfter": _consumed}


def story(steps: Iterable[TraceEvent], message_id: str) -> list[TraceEvent]:
    """Return what happened to one message, in order: each consumption's beginning and end joined, doubles left out."""
    found: dict[tuple[str, ...], TraceEvent] = {}
    for step in steps:
        if step.message_id != message_id:
            continue
        key = (step.what, step.request) if step.request else (step.what, step.group, step.client, str(step.began_ms))
        before = found.get(key)
        found[key] = step if before is None else _joined(before, step)
    return sorted(found.values(), key=lambda step: (step.began_ms, step.what))


def _joined(one: TraceEvent, other: TraceEvent) -> TraceEvent:
    began, ended = (one, other) if one.took_ms < 0 else (other, one)
    times = [each.began_ms for each in (began, ended) if each.began_ms >= 0]
    return replace(
        ended,
        began_ms=min(times, default=-1),
        group=began.group or ended.group,
        detail=began.detail or ended.detail,
    )
