"""Load of the machine: processor, memory, temperature, as /proc and /sys tell. Parsing is apart from reading."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from storage_driver.named_tuple import NamedTuple

IDLE = (3, 4)  # of the first line of /proc/stat: idle, iowait
COUNTED = 8  # what follows steal is inside user and nice already
HOTTEST_C = 150.0  # what a sensor says above, or below 0, is no temperature
KIB = 1024


class Ticks(NamedTuple):
    """Processor time since boot, in ticks of all processors."""

    busy: int = 0
    all: int = 0

    def share_since(self, before: Ticks) -> float:
        """Return the share of the time between two looks that was busy, 0..1."""
        return (self.busy - before.busy) / (self.all - before.all) if self.all > before.all else 0.0


class HostVitals(NamedTuple):
    """One look; None where the machine does not say."""

    ticks: Ticks = Ticks()
    memory_bytes: int = 0
    memory_used: float = 0.0  # share that is not available to programs
    temperature_c: float | None = None
    own_bytes: int = 0  # resident memory of the box's process
    up_s: float = 0.0


def ticks_of(text: str) -> Ticks:
    """Return the processor time that /proc/stat tells. Source: proc_stat(5)."""
    values = [int(word) for word in text.partition("\n")[0].split()[1 : COUNTED + 1]]
    return Ticks(sum(value for at, value in enumerate(values) if at not in IDLE), sum(values))


def memory_of(text: str) -> tuple[int, float]:
    """Return the bytes of memory and the share in use that /proc/meminfo tells. Source: proc_meminfo(5)."""
    rows = (line.partition(":") for line in text.splitlines())
    found = {name: int(rest.split()[0]) for name, _, rest in rows if name in ("MemTotal", "MemAvailable")}
    total = found["MemTotal"]
    return total * KIB, 1 - found["MemAvailable"] / total


def hottest(texts: Iterable[str]) -> float | None:
    """Return the highest temperature of some sensors, in degrees; they count thousandths."""
    found = []
    for text in texts:
        try:
            found.append(int(text) / 1000)
        except ValueError:
            continue
    return max((degrees for degrees in found if 0 < degrees < HOTTEST_C), default=None)


def read_vitals(root: Path = Path("/")) -> HostVitals:
    """Look once. Blocks for a fraction of a millisecond; what cannot be read stays at its default."""
    ticks, memory, own_bytes, up_s = Ticks(), (0, 0.0), 0, 0.0
    try:
        ticks = ticks_of((root / "proc/stat").read_text())
        memory = memory_of((root / "proc/meminfo").read_text())
        up_s = float((root / "proc/uptime").read_text().split()[0])
        status = (root / "proc/self/status").read_text()
        own_bytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * KIB
    except (OSError, ValueError, LookupError, ZeroDivisionError, StopIteration):
        pass
    return HostVitals(ticks, *memory, hottest(_sensors(root)), own_bytes, up_s)


def _sensors(root: Path) -> Iterable[str]:
    for path in (root / "sys/class/thermal").glob("thermal_zone*/temp"):
        try:
            yield path.read_text()
        except OSError:  # a sensor that sleeps
            continue
