"""The history of a group's log, which each leader goes on with: one line of epochs and runs, whoever ships it.

A run begins with a leadership. What is shipped is below committed, so no two leaders ship different bytes; the centre
sees one box that was started again.
"""

import logging
from typing import Any, Final, Protocol

import trio

from appliance.group.copies.cut_news import merge_cuts
from appliance.group.state.state_applier import StateFiles
from appliance.group.state.state_log import StateLog
from appliance.group.state.state_records import SINGLE, TableChange
from storage_driver.errors import StateDamaged
from storage_driver.log.lineage import AloneRange, CutTold, Lineage, switches_of
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance.group")
HISTORY: Final = "rocketbox/lineage"
LOOK_S: Final = 1.0


class LogWithHistory(Protocol):
    """A store, as far as its history goes."""

    lineage: Lineage

    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...


class _History(NamedTuple):
    """What the last leader told."""

    epochs: list[tuple[int, int]]
    runs: list[tuple[int, int]]
    landing: str | None
    express: list[tuple[int, tuple[str, ...]]] | None  # None: a box of an earlier release, which says nothing of it
    cuts: list[CutTold]
    alone: list[AloneRange]


class SharedHistory:
    """Runs on a leader."""

    def __init__(
        self, store: LogWithHistory, state: StateLog, files: StateFiles, express: tuple[str, ...] = ()
    ) -> None:
        """express: topics that this box ships apart."""
        self._store, self._state, self._files, self._express = store, state, files, express
        self._told: dict[str, Any] = {}

    async def take_over(self) -> None:
        """Go on where the last leader stopped; return once others know it, as whatever is shipped names the run."""
        lineage, before, at = self._store.lineage, await trio.to_thread.run_sync(self._load), self._store.end
        if before is not None:
            epochs, runs, landing, express, cuts, alone = before
            await trio.to_thread.run_sync(lineage.take_over, epochs, runs, landing, at, express)
            merge_cuts(lineage, cuts)
            lineage.note_alone(alone)
        else:
            lineage.note_alone(())
        await trio.to_thread.run_sync(self._switch_express, at)
        while True:
            try:
                await self._state.wait(self._tell())
                return
            except OSError as exc:
                log.warning("event=history_not_in_log reason=%r", str(exc))
            await trio.sleep(LOOK_S)

    def _switch_express(self, log_offset: int) -> None:
        self._store.lineage.switch_express(log_offset, self._express, first=self._store.first)

    async def run(self) -> None:
        """Tell what the uplink changes of it: the landing zone, a new epoch."""
        while True:
            await trio.sleep(LOOK_S)
            if self._now() != self._told:
                try:
                    self._tell()
                except OSError as exc:
                    log.warning("event=history_not_in_log reason=%r", str(exc))

    def _tell(self) -> int:
        now = self._now()
        mark = self._state.append(TableChange(HISTORY, {SINGLE: now}, {}, whole=True))
        self._told = now
        return mark

    def _now(self) -> dict[str, Any]:
        lineage = self._store.lineage
        more = {"cuts": list(map(list, lineage.cuts)), "alone": list(map(list, lineage.alone_told))}
        more = {name: rows for name, rows in more.items() if rows}
        more["express"] = [[at, list(topics)] for at, topics in lineage.express]
        return {"epochs": list(lineage.epochs), "runs": list(lineage.runs), "landing": lineage.landing, **more}

    def _load(self) -> "_History | None":
        """Return what the last leader told, None where there was none. Blocks."""
        try:
            content: Any = self._files.tables[HISTORY].load()
            if content is None:
                return None
            epochs, runs = ([(int(a), int(b)) for a, b in content[name]] for name in ("epochs", "runs"))
            cuts = [CutTold(str(name), *map(int, rest)) for name, *rest in content.get("cuts", ())]
            alone = [AloneRange(*map(int, row)) for row in content.get("alone", ())]
            landing, rows = content["landing"], content.get("express")
            express = None if rows is None else switches_of(rows)
        except (StateDamaged, OSError, KeyError, TypeError, ValueError) as exc:
            log.error("event=table_damaged table=lineage reason=%r", f"{type(exc).__name__}: {exc}")
            return None
        return _History(epochs, runs, landing if isinstance(landing, str) else None, express, cuts, alone)
