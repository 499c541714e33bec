"""What the box says about itself: worst state, reasons with a next step, one small file everybody reads."""

import errno
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import trio

from appliance.health.condition_rules import of_watchdog
from appliance.health.conditions import Condition, ordered, worst
from appliance.health.health_file import WRITE_S
from storage_driver.files.disk import SPACE_ERRORS
from storage_driver.named_tuple import NamedTuple
from watchdog.feed import FeedStatistics
from watchdog.history import BootNote
from watchdog.proof import ProofVerdict

LOG = logging.getLogger("appliance")
LONGEST_LINE = 120
CARRIED_S = 30.0  # what lasted before is seen by then: two looks, and the ten seconds that no_quorum takes
_STEPS = {
    **dict.fromkeys(SPACE_ERRORS, "free_space_there"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "let_the_box_write_there"),
    errno.EROFS: "mount_it_writable",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR), "remove_what_is_in_its_place"),
}


class DiskUsage(NamedTuple):
    """How full the store's file system is, as `df` counts; `full_in_h` None when it is not filling."""

    used: float
    full_in_h: float | None


class Release(NamedTuple):
    """What runs: `committed` is False while a new version is on trial; `pure` says why no module is compiled, if so."""

    version: str
    slot: str
    committed: bool
    pure: str = ""


Source = Callable[[], Iterable[Condition]]  # what is wrong now
Split = Callable[[Iterable[Condition]], tuple[list[Condition], list[Condition]]]  # to tell, and muted


def all_told(found: Iterable[Condition]) -> tuple[list[Condition], list[Condition]]:
    """Mute nothing."""
    return list(found), []


class HealthBoard:
    """Collects what is wrong from every part and writes `health.json` every 10 s and at each change."""

    def __init__(
        self,
        path: Path,
        release: Callable[[], Release],
        note: BootNote,
        *,
        sources: Iterable[Source] = (),
        disk: Callable[[], DiskUsage] = lambda: DiskUsage(0.0, None),
        clock_trusted: Callable[[], bool] = lambda: False,
        rate: Callable[[], float] = lambda: 0.0,
        ports: Mapping[str, int] | None = None,
        split: Split = all_told,
        more: Callable[[], Mapping[str, Any]] = dict,
        said: set[str] | None = None,
    ) -> None:
        """more: what else the health object holds, such as the uplink's line.

        said: keys of what the log was told, by a board before this one, too: a member has one for each standing.
        """
        self._path, self._release, self._note = path, release, note
        self._sources, self._disk, self._clock_trusted, self._rate = tuple(sources), disk, clock_trusted, rate
        self._ports, self._split, self._more = dict(ports or {}), split, more
        self._verdict: ProofVerdict | None = None
        self._state, self._since_s = "starting", time.monotonic()
        self._changed, self._written = trio.Event(), True
        self._said = said if said is not None else set[str]()
        self._carried = set(self._said)  # of a board before, and not seen by this one: it looks first
        self.feeding: Callable[[], FeedStatistics] | None = None  # the watchdog's counts, once it looks

    def opened(self, name: str, port: int) -> None:
        """Note a port that is open besides the two."""
        self._ports[name] = port
        self._changed.set()

    def add_source(self, source: Source) -> None:
        """Have one more part say what is wrong."""
        self._sources = (*self._sources, source)
        self._changed.set()

    def observe(self, verdict: ProofVerdict) -> None:
        """Take the watchdog's verdict; a change of state is written at once."""
        self._verdict = verdict
        before = self._state
        if self._now()[0] != before:
            self._changed.set()

    def snapshot(self) -> dict[str, Any]:
        """Return the health object: `status --json`, the serial line's `status`, telemetry."""
        state, reasons, muted = self._now()
        ages = self._verdict.ages_s if self._verdict else {}
        disk, release = self._disk(), self._release()  # a trial is committed while the product runs
        return {
            "state": state,
            "since_s": int(time.monotonic() - self._since_s),
            "version": release.version,
            "pure": release.pure,
            "slot": release.slot,
            "committed": release.committed,
            "ports": self._ports,
            "boot": self._note.number,
            "reset_reason": self._note.reason,
            "reasons": [reason.to_json() for reason in reasons],
            "proof": {f"{name}_age_s": round(age, 1) for name, age in ages.items()},
            "disk": {"used": round(disk.used, 3), "full_in_h": disk.full_in_h and round(disk.full_in_h)},
            "clock_trusted": self._clock_trusted(),
            "muted": [each.to_json() for each in muted],
            **self._more(),
        }

    def status_line(self) -> str:
        """Return at most 120 bytes for `systemctl status`."""
        (state, reasons, _), release = self._now(), self._release()
        why = f" ({reasons[0].text})" if reasons else ""
        line = (
            f"{state}{why}, {self._rate():.0f} msg/s, disk {self._disk().used * 100:.0f} %, "
            f"slot {release.slot} {release.version}"
        )
        return line.encode()[:LONGEST_LINE].decode(errors="ignore")

    async def run(self, wait_change: Callable[[], Awaitable[None]] = trio.sleep_forever) -> None:
        """Keep the file up to date until cancelled; it is written at once when `wait_change` returns."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._note_changes, wait_change)
            await self._write_often()

    async def _note_changes(self, wait_change: Callable[[], Awaitable[None]]) -> None:
        while True:
            await wait_change()
            self._changed.set()

    async def _write_often(self) -> None:
        looked_s = trio.current_time() + CARRIED_S
        while True:
            self.write()
            self._tell(looked=trio.current_time() >= looked_s)
            with trio.move_on_after(WRITE_S):
                await self._changed.wait()
            self._changed = trio.Event()

    def _tell(self, *, looked: bool) -> None:
        """Log what is newly wrong, and what no longer is or is muted; the watchdog itself tells why it starves.

        looked: whether what an earlier board told would be seen by now if it still were.
        """
        _, reasons, muted = self._now()
        starving = self._verdict.reasons if self._verdict and not self._verdict.feed else ()
        told_elsewhere = {of_watchdog(reason).key for reason in starving}
        for each in reasons:
            if each.key not in self._said and each.key not in told_elsewhere:
                words = (self._state, each.kind.code, each.key, each.text, each.next)
                LOG.warning("event=%s code=%s condition=%s text=%r next_step=%r", *words)
        now = {each.key for each in reasons}
        self._carried = set() if looked else self._carried - now
        quiet = {each.key for each in muted}
        for key in sorted(self._said - now - self._carried):
            LOG.info("event=%s condition=%s", "muted" if key in quiet else "over", key)
        self._said &= self._carried
        self._said |= now

    def conditions(self) -> tuple[str, list[Condition]]:
        """Return the state and why it is so, the weightiest first."""
        return self._now()[:2]

    def summary(self) -> tuple[str, list[str]]:
        """Return state and sentences, for the centre."""
        state, told = self.conditions()
        return state, [f"{each.key}: {each.text}" for each in told]

    def _now(self) -> tuple[str, list[Condition], list[Condition]]:
        """Return the state, what is told, what is muted."""
        found = [each for source in self._sources for each in source()]
        states = ["starting"]
        if self._verdict is not None:
            found += map(of_watchdog, self._verdict.reasons)
            states = [self._verdict.state]
        told, muted = self._split(ordered(found))
        state = worst([each.kind.state for each in told] + states)
        if state != self._state:
            self._state, self._since_s = state, time.monotonic()
        return state, told, muted

    def write(self) -> None:
        """Replace the file, unsynced: it is in memory and is void after a boot. Without room the box continues."""
        text = json.dumps({**self.snapshot(), "pid": os.getpid()}) + "\n"
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(fresh, "w", opener=_at_once) as out:
                out.write(text)
            fresh.chmod(0o644)
            os.replace(fresh, self._path)
        except OSError as exc:
            if self._written:
                step = _STEPS.get(exc.errno or 0, "check_the_folder")
                LOG.error("event=health_not_written file=%s reason=%r next_step=%s", self._path, str(exc), step)
            self._written = False
        else:
            self._written = True


def _at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the reader that a pipe in its place wants. Raises OSError."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
