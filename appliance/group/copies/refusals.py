"""Why a follower takes no more of the log: it tells its leader, which names it to people and to senders."""

from typing import Final, Protocol

from appliance.group.links.frames import COPY_REFUSES, MOST_TEXT, LinkFrame, encode_frame, typed

MAKE_ROOM: Final = "make room on its disk, it continues automatically then"


class Listener(Protocol):
    """A link, as far as it takes frames."""

    def put(self, frame: bytes, /) -> None: ...


class CopyRefusals:
    """What a follower has told over which link; what a leader has heard of which member."""

    def __init__(self) -> None:
        self._told: tuple[object, str] = None, ""
        self._heard: dict[str, str] = {}

    def tell(self, link: Listener, full: str | None, refused: str) -> None:
        """Tell the leader behind this link why nothing is taken, when that is new; "": all is taken again."""
        reason = f"has no space: {full} ({MAKE_ROOM})" if full else f"takes nothing: {refused}" if refused else ""
        told_to, known = self._told
        if reason != known or (told_to is not None and told_to is not link):  # over another: who knows what it heard
            self._told = link, reason
            link.put(encode_frame(COPY_REFUSES, {"reason": reason[:MOST_TEXT]}))

    def heard(self, member: str, frame: LinkFrame) -> None:
        """Take what a follower says. Raises ProtocolError."""
        fields = frame.fields("COPY_REFUSES")
        self._heard[member] = typed("COPY_REFUSES", lambda: fields.text("reason"))[:MOST_TEXT]

    def forget(self, member: str) -> None:
        """Its link has ended: who knows."""
        self._heard.pop(member, None)

    def of(self, member: str) -> str:
        """Return why a member takes nothing, "" where it does, as far as it has told."""
        return self._heard.get(member, "")
