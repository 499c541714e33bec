"""The wall clock, and whether to believe it: synchronised by the kernel's word, or set by the bench in this boot."""

from __future__ import annotations

import ctypes
from pathlib import Path

STA_UNSYNC, TIME_ERROR = 0x0040, 5
SET_BY_BENCH = Path("/run/rocketbox-clock-set")
TIMESYNCD = Path("/run/systemd/timesync/synchronized")  # the sandbox of the service denies adjtimex
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2) on 64-bit Linux; only `status` is read."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock_trusted(mark: Path = SET_BY_BENCH) -> bool:
    """Return whether time stamps of this boot mean something."""
    return mark.exists() or TIMESYNCD.exists() or kernel_synchronised()


def kernel_synchronised() -> bool:
    """Ask adjtimex(2); reading needs no privilege. A kernel that refuses counts as not synchronised."""
    timex = _Timex()
    state = _LIBC.adjtimex(ctypes.byref(timex))
    return state not in (-1, TIME_ERROR) and not timex.status & STA_UNSYNC
