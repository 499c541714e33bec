"""Ties the product to the box it runs on: boot diary, systemd, watchdog, health file."""

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import trio

from appliance.clock import clock_trusted
from appliance.compiled import why_pure
from appliance.configuration.settings import Config
from appliance.device.probe import Probe
from appliance.health.condition_memory import ConditionMemory
from appliance.health.condition_rules import StoreSeen, store_conditions
from appliance.health.conditions import Condition
from appliance.health.health import DiskUsage, HealthBoard, Release, Source, Split, all_told
from appliance.version import package_version
from provisioning.slots import SlotError, Slots
from storage_driver.errors import LogFailed
from storage_driver.files.unreadable import read_around
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore
from watchdog.feed import Feeder, WatchdogConfig, Wiring, uptime_s
from watchdog.history import BootNote, Diary
from watchdog.notes import make_folder
from watchdog.notify import Notifier
from watchdog.proof import Success
from watchdog.vitals import VitalSigns

EXTEND_S = 10.0
PROVE_S = 4.0  # an idle store shows this often that its disk works
UNWATCHED_S = 30.0  # how long a process outlives its proof where no watchdog runs: as WatchdogSec of rocketbox.service
READ_ONLY_MARK = Path("/run/rocketbox-read-only")
TIRED_EXIT = 79
FAREWELL_S = 5.0  # beside the five seconds that a stop may take; systemd waits for ten
PROTECTION_OFF = "remove the protection (lsattr, chattr -i, ls -l), then restart"
LEDGER_FOLDER, LEDGER_FILES = "rocketbox", ("uplink.cbor", "gaps.log")


class RestartLoop(Exception):
    """Ten ends within the hour and no ten healthy minutes: starting once more would help nobody."""

    def __init__(self) -> None:
        super().__init__("exited ten times within an hour: rocketbox-escalate.service takes over (exit 79)")


class HealthParts(NamedTuple):
    """What the health object is made of besides the supervision's own."""

    trend: "DiskTrend"
    sources: tuple[Source, ...] = ()
    split: Split = all_told
    more: Callable[[], Mapping[str, Any]] = dict
    wait_change: Callable[[], Awaitable[None]] = trio.sleep_forever  # returns when people are to hear something at once


class Supervision(NamedTuple):
    """What outlives the store: who is told, where notes go, which boot and start this is."""

    notifier: Notifier
    diary: Diary
    note: BootNote
    runtime: Path  # health.json, admin.sock
    config_crc32: int | None
    proof_limit_s: float
    progress: list[int]  # of the recovery: bytes scanned, bytes in all, blocks that cannot be read
    farewells: list[Callable[[], Awaitable[None]]]  # what is done at a wanted stop while the box still serves
    memory: ConditionMemory
    read_only: str | None = None  # why nothing may be written to the data disk
    unnoted: str | None = None  # why the notes are in the runtime folder, though the disk takes writes
    next_step: str = "save the stored messages (consume, `rocketbox backup`), replace the disk, reboot"

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
        """Note the boot and the start, before the store is touched. Raises RestartLoop, OSError, SettingIllegal.

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
            raise RestartLoop
        make_folder(runtime, of_notes=False)
        config_crc32 = crc32(file.read_bytes()) if file and file.exists() else None
        notifier = Notifier.from_environment(environ)
        limit_s, memory = config.watchdog.proof_limit_s, ConditionMemory()
        return cls(notifier, diary, note, runtime, config_crc32, limit_s, [0, 0, 0], [], memory, read_only, unnoted)

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
        self.progress[:2] = done, total

    def recovery_line(self) -> str:
        """Return what systemd shows while the store recovers."""
        done, total, blocks = self.progress
        line = f"recovering {100 * done // total} % of {total / (1 << 20):.0f} MiB" if total else "recovering"
        return f"{line}, the disk does not give back {blocks} blocks of 4 KiB" if blocks else line

    def ledger_root(self, root: Path) -> Path:
        """Return where the uplink keeps its ledger: a copy in memory when the disk takes no writes. Blocks."""
        if self.read_only is None:
            return root
        copied = self.runtime / "uplink" / LEDGER_FOLDER
        copied.mkdir(parents=True, exist_ok=True)
        for name in LEDGER_FILES:
            if (root / LEDGER_FOLDER / name).exists():
                (copied / name).write_bytes(read_around(root / LEDGER_FOLDER / name)[0])
        return copied.parent

    async def keep_extending(self, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        """Ask systemd for more time every second while the store recovers, until the scope it starts with ends."""
        with trio.CancelScope() as scope:
            task_status.started(scope)
            while True:
                self.notifier.extend(EXTEND_S)
                self.notifier.status(self.recovery_line())
                await trio.sleep(1.0)

    def _own_conditions(self) -> list[Condition]:
        """Return that restarts and boots are not counted."""
        if self.unnoted is None:
            return []
        text = f"the records of boots and restarts will be lost at the next boot: {self.unnoted}"
        return [Condition("notes_unsaved", text, PROTECTION_OFF)]

    async def stopping(self) -> None:
        """Tell systemd and the next boot that this stop is wanted."""
        self.notifier.stopping()
        with trio.move_on_after(FAREWELL_S):
            for farewell in self.farewells:
                await farewell()
        note = partial(self.diary.planned, boot=self.note.boot, reason="SIGTERM", who="systemd")
        try:
            await trio.to_thread.run_sync(note)
        except OSError:
            pass  # the stop continues; the next boot will call it a power cut

    def _own_sources(self, store: MessageStore) -> tuple[Source, ...]:
        return self._own_conditions, partial(conditions_of_store, store, self.read_only, self.next_step)

    def _feeder(self, wiring: Wiring) -> Feeder:
        settings = WatchdogConfig(self.note.boot, self.config_crc32, self.proof_limit_s)
        return Feeder(self.notifier, settings, wiring, self.diary)

    async def _end_unwatched(self, store: MessageStore) -> None:
        if not self.notifier.watchdog_s and self.read_only is None:
            await end_failed(store, self.proof_limit_s + UNWATCHED_S)

    async def watch(
        self,
        store: MessageStore,
        probe: Probe,
        *,
        refuse: Callable[[bool], None],
        told: HealthParts,
        task_status: trio.TaskStatus[HealthBoard],
    ) -> None:
        """Feed systemd and keep the health file until cancelled; started once both ports have answered."""
        board = HealthBoard(
            self.runtime / "health.json",
            running_release,
            self.note,
            sources=(*told.sources, *self._own_sources(store)),
            disk=told.trend.now,
            clock_trusted=clock_trusted,
            rate=told.trend.rate,
            ports={"namesrv": probe.namesrv_port, "broker": probe.broker_port},
            split=told.split,
            more=told.more,
            said=self.memory.said,
        )
        wiring = Wiring(
            durable=partial(durable, store) if self.read_only is None else answering,
            probe=probe,
            read_vitals=VitalSigns().read,
            observe=board.observe,
            refuse=refuse,
            status=board.status_line,
        )
        feeder = self._feeder(wiring)
        board.feeding = feeder.statistics
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_proving, store)
            nursery.start_soon(self._end_unwatched, store)
            nursery.start_soon(board.run, told.wait_change)
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


async def end_failed(store: MessageStore, limit_s: float) -> None:
    """End the process once its failed disk has proven nothing for that long: only a start goes on. Raises LogFailed."""
    while True:
        failure = store.evidence().failure
        if failure is not None and time.monotonic() - durable(store).at_s >= limit_s:
            raise LogFailed(failure)
        await trio.sleep(PROVE_S)


def conditions_of_store(store: MessageStore, read_only: str | None = None, step: str = "") -> list[Condition]:
    """Return what is wrong with the store now."""
    seen, losses = store.statistics(), store.losses.unacknowledged()
    damaged = [loss for loss in losses if loss.damaged]
    facts = StoreSeen(
        failure=store.evidence().failure,
        read_only=read_only,
        read_only_step=step,
        verdict=store.verdict.verdict,
        losses=[(loss.number, loss.sentence()) for loss in losses if not loss.damaged],
        damaged_ranges=sum(len(loss.ranges) for loss in damaged),
        damage="; ".join(loss.sentence() for loss in damaged),
        scrubbed_bytes=seen.scrubbed_bytes,
        unsaved=store.unsaved(),
        guessed=store.guessed(),
        unreadable=store.unreadable(),
    )
    return store_conditions(facts)


class DiskTrend:
    """How full the store's file system is, how fast it fills, and the message rate: from the last hour's looks."""

    def __init__(self, statistics: Callable[[], object], path: Path) -> None:
        self._statistics, self._path = statistics, path
        self._looks: list[tuple[float, int, int]] = []  # time, used bytes, messages

    def now(self) -> DiskUsage:
        """Look, and return share and forecast."""
        seen = os.statvfs(self._path)
        total, free = seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize
        used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
        self._note(used)
        span_s = self._looks[-1][0] - self._looks[0][0]
        growth = (self._looks[-1][1] - self._looks[0][1]) / span_s if span_s > 60 else 0.0
        full_in_h = free / growth / 3600 if growth > 1 else None
        return DiskUsage(used / (used + free) if total else 0.0, full_in_h)

    def rate(self) -> float:
        """Return the messages per second between the last two looks."""
        if len(self._looks) < 2:
            return 0.0
        (then, _, before), (now, _, after) = self._looks[-2:]
        return (after - before) / (now - then) if now > then else 0.0

    def space(self) -> tuple[float, int, float | None]:
        """Look, and return share, bytes used and forecast."""
        disk = self.now()
        return disk.used, self._looks[-1][1], disk.full_in_h

    def _note(self, used: int) -> None:
        now_s = time.monotonic()
        messages = int(getattr(self._statistics(), "messages", 0))
        if not self._looks or now_s - self._looks[-1][0] >= 5:
            self._looks.append((now_s, used, messages))
        while self._looks[-1][0] - self._looks[0][0] > 3600:
            self._looks.pop(0)


def running_release(base: Path = Path("/opt")) -> Release:
    """Return what runs: the slot's version on a box, the package's elsewhere."""
    slots, own, pure = Slots(base), package_version(), why_pure()
    try:
        state, slot = slots.load(), slots.running()
    except (SlotError, OSError):
        return Release(own, "-", True, pure)
    here = Path(__file__).resolve()  # below a slot, or below the image that a slot is a link to
    if slot is None or not any(here.is_relative_to((base / name).resolve()) for name in ("slots", "appliance")):
        return Release(own, "-", True, pure)
    return Release(state.version(slot), slot, state.trial != slot, pure)
