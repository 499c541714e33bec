"""Where the log of a box leaves the history the centre knows: two run lists are aligned, no clock is asked.

A run is one opening of the store: its id is random, its start is the recovered end of the log. Below the fork both logs
are the same bytes, since a run id is one process writing one log and run starts are record boundaries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

ALPN = "rocketbox-uplink/1"
BOX_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
Run = tuple[int, int]  # run id, log offset where it began


def find_fork(known: Sequence[Run], told: Sequence[Run], covered: int, durable: int) -> int | None:
    """Return the log offset of divergence, None to accept.

    known: the run list last accepted for this epoch; told: the list in HELLO; covered: the highest end the centre holds
    of this epoch; durable: the box's durable end.
    """
    aligned = _align(known, told)
    if aligned is None:
        return None if not covered or (told and told[0][1] >= covered) else (told[0][1] if told else 0)
    known, told = aligned
    common = 0
    while common < min(len(known), len(told)) and known[common] == told[common]:
        common += 1
    if len(known) > common:
        mine = told[common][1] if common < len(told) else durable
        return min(known[common][1], mine)
    if common < len(told) and told[common][1] < covered:
        return told[common][1]
    return durable if durable < covered else None


def _align(known: Sequence[Run], told: Sequence[Run]) -> tuple[Sequence[Run], Sequence[Run]] | None:
    """Cut both lists so that they begin at the first run they share; old runs fall off at either side."""
    places = {run: at for at, (run, _) in enumerate(known)}
    for at, (run, _) in enumerate(told):
        if run in places:
            return known[places[run] :], told[at:]
    return None


def owner_of(lineage: Sequence[tuple[int, int]], log_offset: int) -> tuple[int, int, int]:
    """Return (epoch, origin, end) of the epoch that owns log_offset; the newest one ends at 2^63."""
    for at in range(len(lineage) - 1, -1, -1):
        epoch, origin = lineage[at]
        if origin <= log_offset or not at:
            return epoch, origin, lineage[at + 1][1] if at + 1 < len(lineage) else 1 << 63
    raise ValueError("an empty lineage")


def spans(lineage: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return (epoch, from, to) for every epoch, the newest one ending at 2^63."""
    ends = [origin for _, origin in lineage[1:]] + [1 << 63]
    return [(epoch, origin, end) for (epoch, origin), end in zip(lineage, ends, strict=True)]


def run_of(runs: Sequence[Run], log_offset: int) -> tuple[int, int, int]:
    """Return (run, start, end) of the run that wrote log_offset; the newest one ends at 2^63.

    Bytes older than the oldest run known belong to it: nobody can tell more.
    """
    for at in range(len(runs) - 1, -1, -1):
        run, start = runs[at]
        if start <= log_offset or not at:
            end = next((later for _, later in runs[at + 1 :] if later > log_offset), 1 << 63)
            return run, min(start, log_offset), end
    raise ValueError("an empty run list")


def stick_fork(known: Sequence[Run], claimed: Sequence[Run], covered: int, durable: int) -> int | None:
    """Return where a stick's history leaves the known one, None when all that it may carry belongs to it.

    A stick is a look at the log as it was: the box may have begun more runs and shipped more since.
    """
    fork = find_fork(known, claimed, covered, max(durable, covered))
    return None if fork is None or fork >= durable else fork
