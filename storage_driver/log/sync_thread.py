"""The log's one thread: it does one call after the other.

Handing a call to a thread that waits already costs half of what trio's thread cache takes (170 instead of 315 µs of
processor time for both ways, CPython 3.11), and there is one hand-over per sync. Its report is heard before any task
gets a turn, and the next call begins right there, before those are told who waited for the last one: a turn of a busy
loop lasts as long as a sync. For the same reason who waits for the first call of an idle thread has it begun at once.
"""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Any

import outcome  # trio's own, in which reschedule takes results
import trio

Call = Callable[[], Any]


class SyncThread:
    """Runs the calls that `take` returns, one at a time; `done` gets the outcome of each. Both run in the loop."""

    def __init__(self, take: Callable[[], Call | None], done: Callable[[outcome.Outcome[Any]], None]) -> None:
        self._take, self._done = take, done
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._asker: trio.lowlevel.Task | None = None
        self._busy = self._hearing = self._ending = False
        self._failed: outcome.Error | None = None
        # A daemon: the process of a loop that failed must end.
        self._thread = threading.Thread(target=self._work, name="log sync", daemon=True)

    def nudge(self) -> None:
        """Begin the next call right now, unless one is under way or there is none. A task's turn costs more."""
        if not self._hearing:
            self._begin()

    def _begin(self) -> None:
        if self._busy or self._ending or self._failed is not None:
            return
        if (call := self._take()) is not None:
            self._busy = True
            self._calls.put(call)

    async def do_all(self) -> None:
        """Return once `take` has no more. What `take` or `done` raises comes out here.

        A call that has begun is always finished and heard of; a cancellation counts between two, and is the end.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.nudge()
        if self._busy:
            self._asker = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._note_cancelled)
        failed, self._failed = self._failed, None
        if failed is not None:
            failed.unwrap()
        await trio.lowlevel.checkpoint_if_cancelled()

    def _note_cancelled(self, _: object) -> trio.lowlevel.Abort:
        self._ending = True
        return trio.lowlevel.Abort.FAILED

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self._token.run_sync_soon(self._heard, outcome.capture(call))

    def _heard(self, ended: outcome.Outcome[Any]) -> None:
        self._busy, self._hearing = False, True
        if isinstance(ended, outcome.Value):  # after an error `done` decides what else there is to do
            self._step(self._begin)
        self._step(self._done, ended)
        self._step(self._begin)
        self._hearing = False
        if not self._busy and self._asker is not None:
            asker, self._asker = self._asker, None
            trio.lowlevel.reschedule(asker)

    def _step(self, step: Callable[..., None], *args: object) -> None:
        result = outcome.capture(step, *args)
        if isinstance(result, outcome.Error) and self._failed is None:
            self._failed = result

    def start(self) -> None:
        self._thread.start()

    async def end(self) -> None:
        """Begin nothing more, return once the thread has ended."""
        self._ending = True
        try:
            with trio.CancelScope(shield=True):
                await self.do_all()
        finally:
            self._calls.put(None)
            self._thread.join()


@asynccontextmanager
async def open_sync_thread(
    take: Callable[[], Call | None], done: Callable[[outcome.Outcome[Any]], None]
) -> AsyncIterator[SyncThread]:
    """Yield a thread that has ended when the context is left."""
    thread = SyncThread(take, done)
    thread.start()
    try:
        yield thread
    finally:
        await thread.end()
