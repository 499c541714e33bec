"""What may be deleted, when senders are refused, when the disk will be full. Plain rules on plain values."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from storage_driver.named_tuple import NamedTuple

MIB = 1 << 20
RESERVE_BYTES = 64 * MIB
MOST_AT_ONCE = 10


class RetentionClass(NamedTuple):
    """Topics with an age of their own; a name may hold * and ? as in file names."""

    topics: tuple[str, ...]
    keep_ms: int


class RetentionRules(NamedTuple):
    """Marks are percent of the file system as df prints them."""

    keep_ms: int = 72 * 3_600_000
    classes: tuple[RetentionClass, ...] = ()  # the first one that names a topic counts
    quota_bytes: int = 0  # most bytes of log; 0: only the marks count
    delete_percent: int = 85  # above: the oldest go, whatever their age
    refuse_percent: int = 90  # above: appends are refused
    resume_percent: int = 88  # at or below: appends are accepted again

    def keep_of(self, topic: str) -> int:
        """Return for how long messages of a topic are kept, in milliseconds."""
        for each in self.classes:
            if any(fnmatchcase(topic, pattern) for pattern in each.topics):
                return each.keep_ms
        return self.keep_ms


class DeletableSegment(NamedTuple):
    """A segment that may go; the caller leaves out the one being written."""

    base: int
    end: int
    size: int
    age_ms: int
    keep_ms: int | None = None  # the longest age of the topics in it; None: that of the rules


class DiskState(NamedTuple):
    """How full the store's file system is."""

    percent: int
    available: int
    total: int


def choose(
    candidates: Sequence[DeletableSegment],
    disk: DiskState,
    rules: RetentionRules,
    *,
    log_bytes: int,
    age_counts: bool,
    may_go: Callable[[int, int], bool],
) -> list[int]:
    """Return the bases of the segments to delete now: from the oldest on, none behind one that stays, at most 10.

    Age rests while `age_counts` is false (clock not trusted). `may_go(base, end)` is the policy's veto.
    """
    chosen: list[int] = []
    freed = 0
    for base, end, size, age_ms, keep_ms in candidates[:MOST_AT_ONCE]:
        expired = age_counts and age_ms >= (rules.keep_ms if keep_ms is None else keep_ms)
        over_quota = rules.quota_bytes > 0 and log_bytes - freed > rules.quota_bytes
        used = disk.percent - 100 * freed // max(1, disk.total)
        pressed = used > rules.delete_percent or disk.available + freed < size + RESERVE_BYTES
        if not (expired or over_quota or pressed) or not may_go(base, end):
            break
        chosen.append(base)
        freed += size
    return chosen


def full_reason(disk: DiskState, rules: RetentionRules, next_bytes: int, *, was_full: bool) -> str | None:
    """Return why appends must be refused, None when they need not be; what was full resumes only below a lower mark.

    next_bytes: what the next segment still needs, 0 once it is allocated.
    """
    mark = rules.resume_percent if was_full else rules.refuse_percent
    need = next_bytes + RESERVE_BYTES
    if was_full:
        need += need // 8
    if disk.percent > mark:
        return f"{disk.percent} % used, writes are blocked until usage is below {rules.resume_percent} %"
    if disk.available < need:
        return f"{disk.available // MIB} MiB available, the next segment and its reserve need {need // MIB} MiB"
    return None


class Forecast:
    """When the refuse mark will be reached, from how space went in the last hour."""

    def __init__(self, window_s: float = 3600.0) -> None:
        self._window_s = window_s
        self._samples: list[tuple[float, int]] = []

    def add(self, time_s: float, available: int) -> None:
        """Note the available bytes at a monotonic time."""
        self._samples.append((time_s, available))
        while len(self._samples) > 2 and self._samples[1][0] <= time_s - self._window_s:
            self._samples.pop(0)

    def full_in_h(self, disk: DiskState, rules: RetentionRules) -> float | None:
        """Return hours until appends are refused at this rate, None when space does not shrink."""
        if len(self._samples) < 2:
            return None
        (began, before), (now, after) = self._samples[0], self._samples[-1]
        if after >= before or now - began < 60:
            return None
        left = disk.available - disk.total * (100 - rules.refuse_percent) // 100
        return max(0.0, left / ((before - after) / (now - began)) / 3600)
