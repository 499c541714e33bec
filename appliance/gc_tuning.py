"""What stops all of a serving Python process for a moment, and how it is kept short.

Untouched, the collector looks at every object of the process again and again: 7 of 100 µs of each send, and 40 ms in
which nothing moves whenever a quarter more objects are there (65,536 remembered sends, CPython 3.11). What a box holds
after its start stays, so the collector never looks at that again; what comes later is mostly freed without it. Tens of
thousands of records wait for the index, and they are no garbage: a look at each 5,000 new objects took 1.4 ms, one at
those of five looks 11, which was a tenth of what 256 senders got through and 4 of 29 ms of their p99. In return nothing
that peers make by the thousand may end as a cycle: TLS (`serving/tls.py`) and broken requests (`web.py`) undo theirs.

A thread that has synced the log waits for the loop's turn to end before it can say so: 1 ms instead of 5.
"""

import ctypes
import gc
import sys

YOUNG, MIDDLE, OLD = 100_000, 5, 1_000  # the youngest per so many new objects, older ones per so many looks
TURN_S = 0.001
# Of mallopt(3). Without these the C library gives the room of a receive or a batch back to the kernel and asks for it
# again, page by page, with each: 1.2 of 9 µs of a message in a batch.
TRIM_THRESHOLD, MMAP_THRESHOLD, MOST_ARENAS = -1, -3, -8
KEPT_BYTES, MAPPED_BYTES = 4 << 20, 1 << 20
DONTNEED = 4  # of madvise(2)


def settle() -> None:
    """Call once, when the process has what it needs and begins to serve."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    sys.setswitchinterval(TURN_S)
    _mallopt(TRIM_THRESHOLD, KEPT_BYTES)
    _mallopt(MMAP_THRESHOLD, MAPPED_BYTES)


def stay_small() -> None:
    """Call once, before other threads begin, where memory matters and speed does not: they share what is free."""
    _mallopt(MOST_ARENAS, 1)


def give_back() -> None:
    """Give the system what a start took and does not need any more."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def give_back_code() -> None:
    """Let go of the pages of code, of which a start alone used a fifth; what runs again comes from the page cache."""
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None or sys.platform != "linux":
        return
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = [line.split() for line in maps]
    for addresses, rights, *_, name in mapped:
        if rights == "r-xp" and name.startswith("/"):  # a file's, and nobody has written there
            start, end = (int(each, 16) for each in addresses.split("-"))
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), DONTNEED)


def _mallopt(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc
        mallopt(parameter, value)
