"""A start of trio without a search for the C library.

trio names its threads by a function of the C library, which `ctypes.util` finds by ldconfig: a process more (80 ms of a
start where three others wanted the two cores), and shutil, tempfile and two compressors in memory, 0.6 MiB. glibc's
name stays.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def no_search() -> Iterator[None]:
    """While trio is imported, if it is, tell it where the C library is; where it is not, threads get no names."""
    if "trio" in sys.modules or "ctypes.util" in sys.modules or sys.platform != "linux":
        yield
        return
    stand_in = ModuleType("ctypes.util")
    stand_in.find_library = lambda name: "libc.so.6"  # type: ignore[attr-defined]
    sys.modules["ctypes.util"] = ctypes.util = stand_in  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del sys.modules["ctypes.util"], ctypes.util  # type: ignore[attr-defined]
