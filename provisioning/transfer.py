"""Go-back-N over a line that loses: which chunks to send next, which to take. No line, no file, no clock."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW = 8
SMALL_CHUNK, LARGE_CHUNK = 1024, 4096
FAST_BAUD = 230400
SILENCE_S = 1.5


def chunk_bytes(baud: int) -> int:
    """Return the chunk size that suits a rate: what is lost on a slow line must be small."""
    return SMALL_CHUNK if baud <= FAST_BAUD else LARGE_CHUNK


@dataclass(frozen=True, slots=True)
class FileChunk:
    """One chunk to send."""

    offset: int
    length: int


class FileSender:
    """What of `size` bytes goes out next; `acknowledged` is where the other side is."""

    def __init__(self, size: int, *, chunk: int, baud: int, have: int = 0) -> None:
        self.size, self.chunk = size, chunk
        self.acknowledged = self._next = have
        self._window = WINDOW
        self._silence_s = SILENCE_S + WINDOW * (chunk + 40) * 10 / baud
        self._repeats = 0
        self._rewound = False  # one rewind for one place; its echoes are not news
        self._heard_s: float | None = None

    @property
    def done(self) -> bool:
        return self.acknowledged >= self.size

    def pieces(self, now_s: float) -> list[FileChunk]:
        """Return the chunks the window allows now, and count them as sent."""
        if self._heard_s is None:
            self._heard_s = now_s
        limit = min(self.size, self.acknowledged + self._window * self.chunk)
        found = []
        while self._next < limit:
            length = min(self.chunk, self.size - self._next)
            found.append(FileChunk(self._next, length))
            self._next += length
        return found

    def acknowledge(self, upto: int, window: int, now_s: float) -> None:
        """Take one acknowledgement; the second equal one means that a chunk was lost."""
        if not self.acknowledged <= upto <= self.size:
            return
        self._heard_s, self._window = now_s, min(window, WINDOW)
        if upto > self.acknowledged:
            self.acknowledged, self._repeats, self._rewound = upto, 0, False
            self._next = max(self._next, upto)
        else:
            self._repeats += 1
            if self._repeats >= 2 and not self._rewound:
                self._rewind()

    def tick(self, now_s: float) -> None:
        """Rewind after silence."""
        if self._heard_s is not None and now_s - self._heard_s >= self._silence_s:
            self._heard_s = now_s
            self._window = max(self._window, 1)  # a lost "go on" after a pause must not stop the transfer
            self._rewind()

    def due_s(self, now_s: float) -> float:
        """Return how long to listen before `tick` would act."""
        return max(0.01, self._silence_s - (now_s - (now_s if self._heard_s is None else self._heard_s)))

    def _rewind(self) -> None:
        if self._next > self.acknowledged or self._window:
            self._next, self._repeats, self._rewound = self.acknowledged, 0, True


class Receiver:
    """What of the chunks that arrive is next; everything else is dropped."""

    def __init__(self, size: int, *, have: int = 0) -> None:
        self.size, self.next = size, have

    @property
    def done(self) -> bool:
        return self.next >= self.size

    def take(self, offset: int, length: int) -> bool:
        """Tell whether the chunk is to be written; an acknowledgement of `next` is due either way."""
        if offset != self.next or not 0 < length <= self.size - offset:
            return False
        self.next += length
        return True
