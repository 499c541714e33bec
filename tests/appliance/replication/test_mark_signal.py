"""Many wait for one mark, and the log is asked once."""

from collections.abc import Callable

import trio

from appliance.replication.mark_signal import MarkSignal
from storage_driver.log.marks import Mark


class Log:
    def __init__(self) -> None:
        self.mark, self.failure, self.asks = Mark(10), None, 0

    def when(self, log_offset: int, wake: Callable[[str | None], None]) -> None:
        self.asks += 1
        self.mark.when(log_offset, wake)


async def test_all_who_wait_are_woken_by_one_ask() -> None:
    log = Log()
    signal, woken = MarkSignal(lambda: log.mark.at, log.when, failure=lambda: log.failure), list[int]()

    async def wait(above: int) -> None:
        await signal.wait(above, 60)
        woken.append(above)

    async with trio.open_nursery() as nursery:
        for above in (10, 10, 20, 30):
            nursery.start_soon(wait, above)
        await trio.testing.wait_all_tasks_blocked()
        assert (log.asks, woken) == (1, [])
        log.mark.move(21)
        await trio.testing.wait_all_tasks_blocked()
        assert (sorted(woken), log.asks) == ([10, 10, 20], 2)
        log.mark.move(31)


async def test_what_is_there_already_is_not_waited_for_and_time_ends_the_rest() -> None:
    log = Log()
    signal = MarkSignal(lambda: log.mark.at, log.when, failure=lambda: log.failure)
    await signal.wait(9, 60)
    for _ in range(5):
        await signal.wait(10, 0.001)
    assert log.asks == 1, "the first ask is still open"


async def test_a_log_that_failed_is_not_asked() -> None:
    log = Log()
    signal = MarkSignal(lambda: log.mark.at, log.when, failure=lambda: "the disk failed")
    await signal.wait(10, 0.001)
    assert log.asks == 0
