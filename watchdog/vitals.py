"""Memory and open files of this process, from /proc. Source: proc_pid_statm(5), proc_pid_fd(5)."""

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

UNLIMITED = 1 << 60  # cgroup v1 writes a huge number where v2 writes "max"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessVitals(NamedTuple):
    """One look at the process."""

    memory_bytes: int
    memory_limit_bytes: int
    descriptors: int
    descriptor_limit: int

    @property
    def memory_ratio(self) -> float:
        return self.memory_bytes / self.memory_limit_bytes if self.memory_limit_bytes else 0.0

    @property
    def descriptor_ratio(self) -> float:
        return self.descriptors / self.descriptor_limit if self.descriptor_limit else 0.0


class VitalSigns:
    """Reads the vitals of this process; limits are looked up once."""

    def __init__(self, *, cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> None:
        self._memory_limit = memory_limit_bytes(cgroups, own) or os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
        self._descriptor_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._memory_bytes = 0

    def read(self) -> ProcessVitals:
        """Return the present figures; two looks at /proc, under a millisecond.

        No descriptor left to look with: then all are taken, and memory is what it was.
        """
        try:
            self._memory_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
            descriptors = len(os.listdir("/proc/self/fd"))
        except OSError as exc:
            if exc.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            descriptors = self._descriptor_limit
        return ProcessVitals(self._memory_bytes, self._memory_limit, descriptors, self._descriptor_limit)


def listener_of(port: int) -> str:
    """Name the program that listens on a TCP port, as far as this user may see."""
    import psutil  # 15 ms of a start that does not need it

    try:
        for one in psutil.net_connections("tcp"):
            if one.laddr and one.laddr.port == port and one.status == "LISTEN" and one.pid:
                return f"{psutil.Process(one.pid).name()} (process {one.pid})"
    except (psutil.Error, OSError):
        return ""
    return ""


def memory_limit_bytes(cgroups: Path, own: Path) -> int | None:
    """Return the smallest memory limit on the way from this process's control group to the root, None if unlimited."""
    found = [int(text) for text in _limit_texts(cgroups, own) if text.isdecimal() and int(text) < UNLIMITED]
    return min(found, default=None)


def _limit_texts(cgroups: Path, own: Path) -> Iterator[str]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        here = top / path.strip("/")
        while here != top.parent:
            try:
                yield (here / name).read_text().strip()
            except OSError:
                pass
            here = here.parent
