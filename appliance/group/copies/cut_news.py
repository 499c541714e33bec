"""What was taken back from a member's log: the member tells its leader, each leader the next one and the centre.

The centre has an entry for it then, also where none of these bytes was ever shipped.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from appliance.group.copies.refusals import CopyRefusals, Listener
from appliance.group.links.frames import CUTS, LinkFrame, encode_frame, typed
from storage_driver.log.cut_history import CutDone
from storage_driver.log.lineage import CutTold, Lineage
from uplink_spark.errors import ProtocolError
from uplink_spark.wire.identity import owner_of

MOST_TOLD: Final = 16  # by one member
MOST_KEPT: Final = 64
CutRow = tuple[int, int, int, int]  # start, end, time, messages


class CutNews:
    """What a follower has told, over which link, and what a leader has heard."""

    def __init__(self) -> None:
        self._told: tuple[object, int] | None = None
        self.refusals = CopyRefusals()

    def tell(self, link: Listener, cuts: Sequence[CutDone]) -> None:
        """Tell the leader behind this link of all cuts, once and when there are more."""
        if cuts and (link, len(cuts)) != self._told:
            self._told = link, len(cuts)
            link.put(encode_frame(CUTS, {"cuts": [list(row) for row in rows_of(cuts)]}))


def rows_of(cuts: Sequence[CutDone]) -> list[CutRow]:
    """Return what is told of cuts: of the newest that took messages of clients."""
    return [(cut.log_offset, cut.end, cut.at_ms, cut.messages) for cut in cuts if cut.messages][-MOST_TOLD:]


def decode_cuts(frame: LinkFrame) -> list[CutRow]:
    """Return CUTS. Raises ProtocolError."""
    fields = frame.fields("CUTS")
    rows = typed("CUTS", lambda: fields.rows("cuts", int, int, int, int))
    found = [(int(str(a)), int(str(b)), int(str(c)), int(str(d))) for a, b, c, d in rows]
    if len(found) > MOST_TOLD or any(row[0] >= row[1] or min(row) < 0 for row in found):
        raise ProtocolError(f"CUTS: {len(found)} ranges, at most {MOST_TOLD} are allowed, none empty or negative")
    return found


def note_cuts(lineage: Lineage, member: str, cuts: Iterable[CutRow] | Sequence[CutDone]) -> None:
    """Have a leader know of what was taken back from a member's log. The epoch is that of the byte before it."""
    rows = [(cut.log_offset, cut.end, cut.at_ms, cut.messages) if isinstance(cut, CutDone) else cut for cut in cuts]
    epochs = lineage.epochs or [(0, 0)]
    told = (
        CutTold(member, owner_of(epochs, max(0, start - 1))[0], start, end, at_ms, messages)
        for start, end, at_ms, messages in rows
        if messages
    )
    merge_cuts(lineage, told)


def merge_cuts(lineage: Lineage, cuts: Iterable[CutTold]) -> None:
    """Add cuts that are not known yet; the newest stay."""
    known = {(cut.member, cut.start, cut.end, cut.at_ms): cut for cut in lineage.cuts}
    for cut in cuts:
        known.setdefault((cut.member, cut.start, cut.end, cut.at_ms), cut)
    lineage.cuts = sorted(known.values(), key=lambda cut: cut.at_ms)[-MOST_KEPT:]
