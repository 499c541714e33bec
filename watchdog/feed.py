"""The loop that feeds systemd while there is proof of work, and notes what it sees.

`READY=1` leaves once both ports have answered; from then on the verdict of every look decides.
"""

import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from watchdog.errors import SettingIllegal
from watchdog.history import Diary
from watchdog.notify import Notifier
from watchdog.proof import Evidence, ProofFacts, ProofLimits, ProofVerdict, Success, is_choked, judge
from watchdog.vitals import ProcessVitals

LOG = logging.getLogger("rocketbox.watchdog")
LOOK_S = 5.0  # at WatchdogSec=30; with a shorter one a sixth of it
STATUS_S = 10.0
HEARTBEAT_S = 60.0
SETTLED_S = 600.0


class WatchdogConfig(NamedTuple):
    """`proof_limit_s` from the configuration; `boot` as in boots.jsonl; the checksum names the configuration."""

    boot: str
    config_crc32: int | None = None
    proof_limit_s: float = 15.0


class FeedStatistics(NamedTuple):
    """Counters since start and the newest lateness."""

    fed: int
    starved: int
    late_s: float
    verdict: ProofVerdict | None


def uptime_s() -> float:
    """Return the seconds since the machine started, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Wiring(NamedTuple):
    """What the feeder asks and tells.

    `durable` returns the newest success of the log's disk (monotonic seconds), `probe` asks both own ports and returns
    whether they answered, `observe` gets every verdict, `refuse` is told whether new connections must stay out.
    """

    durable: Callable[[], Evidence]
    probe: Callable[[], Awaitable[bool]]
    read_vitals: Callable[[], ProcessVitals]
    observe: Callable[[ProofVerdict], None]
    refuse: Callable[[bool], None]
    status: Callable[[], str]


class Feeder:
    """Weighs evidence every few seconds and feeds systemd with the result."""

    def __init__(
        self,
        notifier: Notifier,
        config: WatchdogConfig,
        wiring: Wiring,
        diary: Diary,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        if notifier.watchdog_s and notifier.watchdog_s < 2 * config.proof_limit_s:
            raise SettingIllegal(config.proof_limit_s, notifier.watchdog_s)
        self._notifier, self._config, self._wiring, self._diary = notifier, config, wiring, diary
        self._now_s = now_s
        self._limits = ProofLimits(proof_limit_s=config.proof_limit_s)
        self._look_s = min(LOOK_S, notifier.watchdog_s / 6) if notifier.watchdog_s else LOOK_S
        self._probe_s = max(self._look_s, config.proof_limit_s / 2)  # a third of it is how long an answer may take
        self._accepted: Evidence = Success(0.0)
        self._choked_since_s: float | None = None
        self._verdict: ProofVerdict | None = None
        self._fed = self._starved = 0
        self._late_s = 0.0
        self._one_thread = trio.CapacityLimiter(1)

    def statistics(self) -> FeedStatistics:
        return FeedStatistics(self._fed, self._starved, self._late_s, self._verdict)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Prove the ports, say READY, then look until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._keep_probing)
            self._look(0.0)
            self._notifier.ready()
            task_status.started()
            nursery.start_soon(self._keep_diary)
            nursery.start_soon(self._keep_status)
            await self._keep_looking()

    async def _keep_looking(self) -> None:
        while True:
            due_s = self._now_s() + self._look_s
            await trio.sleep(self._look_s)
            self._look(max(0.0, self._now_s() - due_s))

    def _look(self, late_s: float) -> None:
        now_s, seen = self._now_s(), self._wiring.read_vitals()
        self._late_s = late_s
        facts = ProofFacts(
            evidence={"durable": self._wiring.durable(), "accepted": self._accepted},
            late_s=late_s,
            memory_ratio=seen.memory_ratio,
            descriptor_ratio=seen.descriptor_ratio,
            choked_since_s=self._choked_since_s,
        )
        if not is_choked(facts, self._limits):
            self._choked_since_s = None
        elif self._choked_since_s is None:
            self._choked_since_s = now_s
        before, self._verdict = self._verdict, judge(facts, now_s, self._limits)
        if self._verdict.feed:
            self._fed += 1
            self._notifier.alive()
        if before is None or before.feed != self._verdict.feed:
            self._log_change(before, self._verdict)
        self._wiring.refuse(self._verdict.refuse)
        self._wiring.observe(self._verdict)

    def _log_change(self, before: ProofVerdict | None, verdict: ProofVerdict) -> None:
        if not verdict.feed:
            self._starved += 1
            for reason in verdict.reasons:
                LOG.error("starving code=%s text=%r next=%r", reason.code, reason.text, reason.next)
        elif before is not None:
            LOG.warning("feeding again after an episode of starving, starved=%d", self._starved)

    async def _keep_probing(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask the own ports again and again; the first answer makes the box ready."""
        proven = False
        while True:
            began_s = self._now_s()
            answered = False
            with trio.move_on_after(self._config.proof_limit_s / 3):
                answered = await self._wiring.probe()
            if answered:
                self._accepted = Success(began_s, self._now_s() - began_s)
            if answered and not proven:
                proven = True
                task_status.started()
            await trio.sleep(self._probe_s if answered else self._look_s if proven else 0.1)

    async def _keep_status(self) -> None:
        while True:
            self._notifier.status(self._wiring.status())
            await trio.sleep(STATUS_S)

    async def _keep_diary(self) -> None:
        """Write down in a thread what this boot is like; a stalled disk delays these notes and nothing else."""
        healthy_since_s: float | None = None
        noted, written_s, starving = "", float("-inf"), 0
        while True:
            verdict, now_s = self._verdict, self._now_s()
            state = verdict.state if verdict else "starting"
            if verdict and self._starved > starving and not verdict.feed:
                starving = self._starved
                await self._in_thread(self._note_starving, verdict, stacks())
            if state == "failing":
                healthy_since_s = None
            elif healthy_since_s is None:
                healthy_since_s = now_s
            if not noted and healthy_since_s is not None:
                noted = "healthy"
                await self._in_thread(self._note_healthy, False)
            if noted == "healthy" and healthy_since_s is not None and now_s - healthy_since_s >= SETTLED_S:
                noted = "settled"
                await self._in_thread(self._note_healthy, True)
            if now_s - written_s >= HEARTBEAT_S:
                written_s = now_s
                await self._in_thread(self._note_heartbeat, state)
            await trio.sleep(self._look_s)

    async def _in_thread(self, note: Callable[..., None], *arguments: object) -> None:
        try:
            await trio.to_thread.run_sync(note, *arguments, limiter=self._one_thread)
        except OSError as exc:
            LOG.error("note not written: %s", exc)

    def _note_starving(self, verdict: ProofVerdict, where: list[str]) -> None:
        self._diary.starving(reasons=[reason.to_json() for reason in verdict.reasons], stacks=where)
        self._note_heartbeat("failing")

    def _note_healthy(self, settled: bool) -> None:
        self._diary.healthy(boot=self._config.boot, uptime_s=uptime_s(), settled=settled)
        if settled:
            self._diary.settle(boot=self._config.boot, config_crc32=self._config.config_crc32)

    def _note_heartbeat(self, state: str) -> None:
        self._diary.heartbeat(boot=self._config.boot, uptime_s=uptime_s(), state=state)


def stacks() -> list[str]:
    """Return where every thread and every trio task stands, as text."""
    import traceback  # only a starving process needs it

    found = ["".join(traceback.format_stack(frame)) for frame in sys._current_frames().values()]
    root = trio.lowlevel.current_root_task()
    waiting = [root] if root else []
    while waiting:
        task = waiting.pop()
        lines = "".join(traceback.format_list(traceback.StackSummary.extract(task.iter_await_frames())))
        found.append(f"task {task.name}\n{lines}")
        waiting.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
    return found
