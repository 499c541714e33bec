"""Ties the product to the box it runs on: boot diary, systemd, watchdog, health file."""

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Protocol

import trio

from appliance.clock import clock_trusted
from appliance.health import Disk, HealthBoard, Release, Source
from appliance.probe import Probe
from appliance.settings import Config
from provisioning.slots import SlotError, Slots
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore
from watchdog.feed import Feeder, WatchdogConfig, Wiring, uptime_s
from watchdog.history import BootNote, Diary
from watchdog.notes import make_folder
from watchdog.notify import Notifier
from watchdog.proof import Reason, Success
from watchdog.vitals import VitalSigns

EXTEND_S = 10.0
PROVE_S = 4.0  # an idle store shows this often that its disk works
READ_ONLY_MARK = Path("/run/rocketbox-read-only")
TIRED_EXIT = 79
PROTECTION_OFF = "take the protection off (lsattr, chattr -i, ls -l), restart"
LEDGER_FOLDER, LEDGER_FILES = "rocketbox", ("uplink.cbor", "gaps.log")
UPLINK_LATE_S = 3600.0
DAY_S = 86_400.0
CERTIFICATE_S = 30 * DAY_S  # before its end


class Tired(Exception):
    """Ten ends within the hour and no ten healthy minutes: starting once more would help nobody."""

    def __init__(self) -> None:
        super().__init__("ended ten times within the hour: leaving it to rocketbox-escalate.service (exit 79)")


class Supervision(NamedTuple):
    """What outlives the store: who is told, where notes go, which boot and start this is."""

    notifier: Notifier
    diary: Diary
    note: BootNote
    runtime: Path  # health.json, admin.sock
    config_sha256: str
    proof_limit_s: float
    progress: list[int]  # of the recovery: bytes scanned, bytes in all
    read_only: str | None = None  # why nothing may be written to the data disk
    unnoted: str | None = None  # why the notes are in the runtime folder, though the disk takes writes
    next_step: str = "fetch what is stored (consume, rocketbox backup), replace the disk, reboot"

    @classmethod
    def begin(
        cls,
        config: Config,
        data: Path,
        file: Path | None,
        environ: Mapping[str, str],
        *,
        mark: Path = READ_ONLY_MARK,
    ) -> "Supervision":
        """Note the boot and the start, before the store is touched. Raises Tired, OSError, SettingIllegal.

        Under the escalation's mark for read-only service the notes go to the runtime folder: the disk takes none. So
        they do where theirs is protected, which is no reason not to serve.
        """
        runtime = Path(environ.get("RUNTIME_DIRECTORY", "").partition(":")[0] or data / "run")
        read_only = mark.read_text().strip() if mark.exists() and "NOTIFY_SOCKET" in environ else None
        unnoted = None
        try:
            diary, note = _noted(data if read_only is None else runtime)
        except PermissionError as exc:
            unnoted = f"{exc.filename2 or exc.filename}: {exc.strerror}"
            diary, note = _noted(runtime)
        if "NOTIFY_SOCKET" in environ and diary.tired(uptime_s=uptime_s(), settled=note.settled):
            raise Tired
        make_folder(runtime, of_notes=False)
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest() if file and file.exists() else ""
        notifier = Notifier.from_environment(environ)
        return cls(notifier, diary, note, runtime, sha256, config.watchdog.proof_limit_s, [0, 0], read_only, unnoted)

    def protected(self, reason: str) -> "Supervision":
        """Return the same for a box that only reads, because a file is protected against writing."""
        return self._replace(read_only=reason, next_step=PROTECTION_OFF)

    def start_facts(self) -> dict[str, object]:
        """Return which start this is, for the recovery verdict. Blocks."""
        return {
            "clock_trusted": clock_trusted(),
            "boot": self.note.number,
            "attempt": self.diary.ends_in_this_boot() + 1,
            "previous_exit": self.diary.previous_exit(),
        }

    def recovering(self, done: int, total: int) -> None:
        """Note how far the recovery is; called in a thread."""
        self.progress[:] = done, total

    def recovery_line(self) -> str:
        """Return what systemd shows while the store recovers."""
        done, total = self.progress
        return f"recovering {100 * done // total} % of {total / (1 << 20):.0f} MiB" if total else "recovering"

    def ledger_root(self, root: Path) -> Path:
        """Return where the uplink keeps its ledger: a copy in memory when the disk takes no writes. Blocks."""
        if self.read_only is None:
            return root
        copied = self.runtime / "uplink" / LEDGER_FOLDER
        copied.mkdir(parents=True, exist_ok=True)
        for name in LEDGER_FILES:
            if (root / LEDGER_FOLDER / name).exists():
                shutil.copyfile(root / LEDGER_FOLDER / name, copied / name)
        return copied.parent

    async def keep_extending(self, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        """Ask systemd for more time every second while the store recovers, until the scope it starts with ends."""
        with trio.CancelScope() as scope:
            task_status.started(scope)
            while True:
                self.notifier.extend(EXTEND_S)
                self.notifier.status(self.recovery_line())
                await trio.sleep(1.0)

    def _own_reasons(self) -> list[tuple[str, Reason]]:
        """Return that restarts and boots are not counted."""
        if self.unnoted is None:
            return []
        text = f"the notes of boots and restarts are lost at the next boot: {self.unnoted}"
        return [("degraded", Reason("D204", text, PROTECTION_OFF))]

    async def stopping(self) -> None:
        """Tell systemd and the next boot that this stop is wanted."""
        self.notifier.stopping()
        note = partial(self.diary.planned, boot=self.note.boot, reason="SIGTERM", who="systemd")
        try:
            await trio.to_thread.run_sync(note)
        except OSError:
            pass  # the stop goes on; the next boot will call it a power cut

    async def watch(
        self,
        store: MessageStore,
        probe: Probe,
        *,
        refuse: Callable[[bool], None],
        sources: tuple[Source, ...] = (),
        task_status: trio.TaskStatus[HealthBoard],
    ) -> None:
        """Feed systemd and keep the health file until cancelled; started once both ports have answered."""
        disk = DiskTrend(store.statistics, store.config.root)
        own = (self._own_reasons, partial(store_reasons, store, self.read_only, self.next_step), disk.reasons)
        board = HealthBoard(
            self.runtime / "health.json",
            running_release,
            self.note,
            sources=(*sources, *own),
            disk=disk.now,
            clock_trusted=clock_trusted,
            rate=disk.rate,
            ports={"namesrv": probe.namesrv_port, "broker": probe.broker_port},
        )
        wiring = Wiring(
            durable=partial(durable, store) if self.read_only is None else answering,
            probe=probe,
            read_vitals=VitalSigns().read,
            observe=board.observe,
            refuse=refuse,
            status=board.status_line,
        )
        settings = WatchdogConfig(self.note.boot, self.config_sha256, self.proof_limit_s)
        feeder = Feeder(self.notifier, settings, wiring, self.diary)
        board.feeding = feeder.statistics
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_proving, store)
            nursery.start_soon(board.run)
            await nursery.start(feeder.run)
            board.write()
            task_status.started(board)


def _noted(folder: Path) -> tuple[Diary, BootNote]:
    """Note the boot and the start in a folder. Raises OSError."""
    diary = Diary(folder / "watchdog")
    return diary, diary.begin(now_s=time.time(), trusted=clock_trusted())


def durable(store: MessageStore) -> Success:
    """Return the store's newest proof on the watchdog's clock; a failed log proves nothing any more."""
    seen = store.evidence()
    age_s = seen.synced_age_s if seen.failure is None else max(seen.synced_age_s, seen.waiting_s)
    return Success(time.monotonic() - age_s)


def answering() -> Success:
    """Return a proof that is always fresh: a box that only reads has no sync to show, its ports are proof enough."""
    return Success(time.monotonic())


async def keep_proving(store: MessageStore) -> None:
    """Have an idle store write and sync, so that its disk is known to work; what fails ages the proof."""
    while True:
        await trio.sleep(PROVE_S)
        if store.evidence().synced_age_s >= PROVE_S / 2 and store.evidence().failure is None:
            try:
                await store.prove()
            except OSError:
                continue


def store_reasons(store: MessageStore, read_only: str | None = None, step: str = "") -> list[tuple[str, Reason]]:
    """Return what is wrong with the store as health reasons."""
    failure = store.evidence().failure
    found = []
    if read_only is not None:
        found.append(("read_only", Reason("D501", f"reads only, sends are refused: {read_only}", step)))
    elif failure is not None:
        found.append(("failing", Reason("D501", f"the log's disk failed: {failure}", "replace the disk; D101, D104")))
    found += loss_reasons(store)
    if store.verdict.verdict == "salvaged":
        text = "recovery ended with salvaged"
        found.append(("degraded", Reason("D108", text, "read the newest file in verdicts/, then quarantine/")))
    if unsaved := store.unsaved():
        text = f"not saved, a restart forgets what changed: {', '.join(unsaved)}"
        found.append(
            ("degraded", Reason("D109", text, "let the box write there (ls -l, lsattr), make room (df, df -i)"))
        )
    return found


def loss_reasons(store: MessageStore) -> list[tuple[str, Reason]]:
    """Return what was durable and is gone, until somebody has acknowledged it."""
    step = "`rocketbox loss` says what; `rocketbox loss --acknowledge` once somebody knows; see D101 and D104"
    return [("degraded", Reason("D110", loss.sentence(), step)) for loss in store.losses.unacknowledged()]


class UplinkSeen(Protocol):
    """What the shipper's snapshot tells about the uplink."""

    @property
    def address(self) -> str: ...
    @property
    def unshipped_bytes(self) -> int: ...
    @property
    def oldest_unshipped_s(self) -> float: ...
    @property
    def alarms(self) -> Mapping[str, str]: ...
    @property
    def last_error(self) -> str: ...
    @property
    def certificate_left_s(self) -> float | None: ...


def uplink_reasons(
    statistics: Callable[[], UplinkSeen], trusted: Callable[[], bool] = clock_trusted
) -> list[tuple[str, Reason]]:
    """Return that the log waits on the box, or soon will: never more than degraded, since a restart cures no link."""
    seen, step = statistics(), "run `rocketbox doctor`: it tries the name, the connection and the certificate"
    texts = list(seen.alarms.values())
    if seen.oldest_unshipped_s > UPLINK_LATE_S:
        late, why = seen.oldest_unshipped_s / 3600, f", last error: {seen.last_error}" if seen.last_error else ""
        texts.append(f"uplink: no receipt for {late:.1f} h, {seen.unshipped_bytes >> 20} MiB waiting{why}")
    found = [("degraded", Reason("D310", text, step)) for text in texts]
    left_s = seen.certificate_left_s
    if left_s is not None and left_s < CERTIFICATE_S and trusted():
        when = f"ends in {left_s / DAY_S:.0f} days" if left_s > 0 else "has expired"
        step = "make a new one at the centre, `python -m uplink_spark certs`, and put it where uplink.certs says"
        found.append(("degraded", Reason("D303", f"the certificate for the gateway {when}", step)))
    return found


class DiskTrend:
    """How full the store's file system is, how fast it fills, and the message rate: from the last hour's looks."""

    WARN, REFUSE = 0.85, 0.90

    def __init__(self, statistics: Callable[[], object], path: Path) -> None:
        self._statistics, self._path = statistics, path
        self._looks: list[tuple[float, int, int]] = []  # time, used bytes, messages

    def now(self) -> Disk:
        """Look, and return share and forecast."""
        seen = os.statvfs(self._path)
        total, free = seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize
        used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
        self._note(used)
        span_s = self._looks[-1][0] - self._looks[0][0]
        growth = (self._looks[-1][1] - self._looks[0][1]) / span_s if span_s > 60 else 0.0
        full_in_h = free / growth / 3600 if growth > 1 else None
        return Disk(used / (used + free) if total else 0.0, full_in_h)

    def rate(self) -> float:
        """Return the messages per second between the last two looks."""
        if len(self._looks) < 2:
            return 0.0
        (then, _, before), (now, _, after) = self._looks[-2:]
        return (after - before) / (now - then) if now > then else 0.0

    def reasons(self) -> list[tuple[str, Reason]]:
        """Return that the disk is getting full; a restart cures none of it, so never more than degraded."""
        disk = self.now()
        full = getattr(self._statistics(), "full", None)  # on a small disk long before the share tells
        if disk.used < self.WARN and full is None:
            return []
        soon = f", full in {disk.full_in_h:.0f} h" if disk.full_in_h is not None else ""
        step = "shorten store.retention_h, raise store.quota_gib, or see why the uplink is behind (D310)"
        if full and disk.used < self.WARN:
            step = "free space on it, or set a smaller store.segment_mib, or give the data a larger disk"
        what = "sends are refused" if full or disk.used >= self.REFUSE else "old segments are deleted"
        what = f"disk {disk.used:.0%} full, {what}" if disk.used >= self.WARN else what
        what += f" ({full})" if full else ""
        return [("degraded", Reason("D107", f"{what}{soon}", step))]

    def _note(self, used: int) -> None:
        now_s = time.monotonic()
        messages = int(getattr(self._statistics(), "messages", 0))
        if not self._looks or now_s - self._looks[-1][0] >= 5:
            self._looks.append((now_s, used, messages))
        while self._looks[-1][0] - self._looks[0][0] > 3600:
            self._looks.pop(0)


@cache
def package_version() -> str:
    """Return the version of the installed package; its folder says it too, and the library for it costs 30 ms."""
    for folder in filter(None, sys.path):
        try:
            names = os.listdir(folder)
        except OSError:  # an archive, or a folder that is not there
            continue
        for name in names:
            if name.startswith("rocketbox-") and name.endswith(".dist-info"):
                return name.removeprefix("rocketbox-").removesuffix(".dist-info")
    return "-"


def running_release(base: Path = Path("/opt")) -> Release:
    """Return what runs: the slot's version on a box, the package's elsewhere."""
    slots, own = Slots(base), package_version()
    try:
        state, slot = slots.load(), slots.running()
    except (SlotError, OSError):
        return Release(own, "-", True)
    here = Path(__file__).resolve()  # below a slot, or below the image that a slot is a link to
    if slot is None or not any(here.is_relative_to((base / name).resolve()) for name in ("slots", "appliance")):
        return Release(own, "-", True)
    return Release(state.version(slot), slot, state.trial != slot)
