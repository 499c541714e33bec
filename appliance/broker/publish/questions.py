"""Request messages whose reply may still arrive, by correlation id.

A client id is a name inside a key, so a reply needs to know whose client id it is for, and who may answer. Kept is what
keys asked, some of each key; a reply to what is not kept finds its client by id alone, if one key has that id.
"""

from storage_driver.named_tuple import NamedTuple

REPLY_TO, CORRELATION_ID = "REPLY_TO_CLIENT", "CORRELATION_ID"
MOST_OF_ONE, MOST = 1024, 16_384  # questions of one key, of all; 15 MiB with the longest names (CPython 3.11)
LONGEST = 255


class ReplyRoute(NamedTuple):
    """Where a reply goes, and the topic that those who may answer can read."""

    owner: str
    client_id: str
    topic: str


class Questions:
    """Correlation id -> question. Who asked first under an id keeps it."""

    def __init__(self, *, most_of_one: int = MOST_OF_ONE, most: int = MOST) -> None:
        self._most_of_one, self._most = most_of_one, most
        self._open: dict[str, ReplyRoute] = {}
        self._of: dict[str, dict[str, None]] = {}  # owner -> correlation ids, the oldest first

    def asked(self, correlation_id: str, question: ReplyRoute) -> None:
        """Remember a question; the oldest of the same owner makes room."""
        known = self._open.get(correlation_id)
        if known is not None and known.owner != question.owner:
            return
        if max(map(len, (correlation_id, *question))) > LONGEST:
            return
        own = self._of.setdefault(question.owner, {})
        if known is None and own and (len(own) >= self._most_of_one or len(self._open) >= self._most):
            oldest = next(iter(own))
            del own[oldest], self._open[oldest]
        if known is not None or len(self._open) < self._most:
            own[correlation_id], self._open[correlation_id] = None, question

    def find(self, correlation_id: str | None) -> ReplyRoute | None:
        return None if correlation_id is None else self._open.get(correlation_id)

    def __len__(self) -> int:
        return len(self._open)
