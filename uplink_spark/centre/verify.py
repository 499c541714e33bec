"""The gateway's look at a piece: container, digest and a walk over every record, before anything is written.

Body CRCs are not computed again: the box has, and the digest proves that these are the bytes it read. `check --deep`
does (`record_check.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uplink_spark.errors import PieceDamaged, RecordsBad, Refused
from uplink_spark.wire.batch import ELSEWHERE, GAP_CLASSES, MAX_RAW_BYTES, PieceHeader, codecs_here, gap_map, open_piece
from uplink_spark.wire.cbor import Fields
from uplink_spark.wire.frames import Hello
from uplink_spark.wire.identity import spans
from uplink_spark.zone.manifest import MAX_ENTRY_BYTES
from uplink_spark.zone.record_layout import lay_out, scan_sizes

Offsets = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)
MAX_GAP_BYTES = MAX_ENTRY_BYTES - (64 << 10)  # its map is part of its entry, beside what the header says; a box: 600 KB


@dataclass(frozen=True, slots=True)
class Verified:
    """A piece that is what it says; `borders` are the log offsets where its records begin and end."""

    header: PieceHeader
    container: bytes
    starts: Offsets
    ends: Offsets
    gap: dict[str, Any] | None = None

    def may_cut(self, log_offset: int) -> bool:
        """Whether a trim at log_offset cuts no record in two."""
        at = int(np.searchsorted(self.ends, log_offset, "right"))  # the first record that ends behind it
        return at == len(self.starts) or int(self.starts[at]) >= log_offset


def verify_piece(container: bytes, judge: Callable[[PieceHeader], None]) -> Verified:
    """Return the piece checked to the last record; judge may refuse it by its header before it is decompressed.

    Raises Refused: damaged, bad_records, too_big, codec and what judge raises.
    """
    try:
        piece = open_piece(container)
        header = piece.header
        judge(header)
        if header.raw_bytes > MAX_RAW_BYTES:
            raise Refused("too_big", f"{header.raw_bytes} raw bytes, at most {MAX_RAW_BYTES}")
        if header.codec not in codecs_here():
            raise Refused("codec", f"codec {header.codec} is not available here, only {', '.join(codecs_here())}")
        if header.kind == "gap":
            if header.raw_bytes > MAX_GAP_BYTES:
                raise Refused("too_big", f"a gap of {header.raw_bytes} bytes, at most {MAX_GAP_BYTES}")
            return Verified(header, container, _NONE, _NONE, _checked_gap(gap_map(piece)))
        raw = piece.raw()
        piece.check_sha(raw)
        if header.kind == "blob":
            gap = {"class": "damaged", "reason": "bad_records", "bytes": len(raw), "declared": header.cut_ms}
            return Verified(header, container, _NONE, _NONE, gap)
        return _walk(header, container, raw, piece.sizes())
    except PieceDamaged as error:
        raise Refused("damaged", str(error)) from error
    except RecordsBad as error:
        raise Refused("bad_records", str(error)) from error


def _checked_gap(gap: dict[str, Any]) -> dict[str, Any]:
    fields = Fields(gap, "gap")
    if fields.text("class") not in GAP_CLASSES:
        raise PieceDamaged(f"gap class {fields.text('class')!r}")
    fields.text("reason")
    if gap["class"] in ELSEWHERE:
        _ = [fields.uint(name) for name in ("of", "from", "to")], fields.uint("records", 0)
    fields.rows("queues", str, int, int, int, int)
    Fields({"id": [gap.get("id")]}, "gap").rows("id", int, int)
    return gap


def _walk(header: PieceHeader, container: bytes, raw: bytes, index: bytes | None) -> Verified:
    if not header.records and raw:
        raise RecordsBad(header.start, f"{len(raw)} bytes without a record")
    sizes = np.frombuffer(index, "<u4").astype(np.int64) if index is not None else scan_sizes(raw, 0, len(raw))
    if len(sizes) != header.records:
        raise RecordsBad(header.start, f"{len(sizes)} records, the header says {header.records}")
    if not len(sizes):
        return Verified(header, container, _NONE, _NONE)
    layout = lay_out(raw, sizes)
    _ = layout.edges  # raises where lengths do not add up
    starts = layout.head["log_offset"].astype(np.int64)
    ends = starts + sizes
    if header.kind == "log":
        wrong = starts != header.start + layout.at
        if wrong.any():
            at = int(np.argmax(wrong))
            raise RecordsBad(header.start + int(layout.at[at]), f"its log-offset field says {int(starts[at])}")
    elif int(starts[0]) < header.start or int(ends[-1]) > header.end or (starts[1:] < ends[:-1]).any():
        raise RecordsBad(header.start, "selected records are not in ascending order inside the range")
    stored = layout.stored_ms
    if (int(stored.min()), int(stored.max())) != (header.stored_ms_min, header.stored_ms_max):
        raise RecordsBad(header.start, "tmin and tmax are not the records' store times")
    return Verified(header, container, starts, ends)


def judge_for(hello: Hello) -> Callable[[PieceHeader], None]:
    """Return the check that a piece belongs to this box, its epochs and runs. It raises Refused `not_yours`."""
    owned = {epoch: (start, end) for epoch, start, end in spans(hello.lineage)}
    runs = dict(hello.runs)
    borders = sorted(set(runs.values()))
    oldest = hello.runs[0][0]

    def judge(header: PieceHeader) -> None:
        low, high = owned.get(header.epoch, (1, 0))
        run_start = runs.get(header.run, -1)
        older = header.run == oldest and header.run_start <= run_start
        next_run = next((start for start in borders if start > max(header.start, run_start)), 1 << 63)
        faults = (
            (header.box != hello.box, f"box {header.box}, connected is {hello.box}"),
            (header.epoch not in owned, f"epoch {header.epoch:x} is not in HELLO"),
            (header.start < low or header.end > high, f"range {header.start}..{header.end} outside {low}..{high}"),
            (header.run_start != run_start and not older, f"run {header.run:x} at {header.run_start} is not in HELLO"),
            (header.kind != "gap" and header.end > next_run, f"range crosses the run start {next_run}"),
        )
        for wrong, text in faults:
            if wrong:
                raise Refused("not_yours", text)

    return judge
