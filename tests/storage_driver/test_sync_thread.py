import threading

import pytest
import trio

from storage_driver.sync_thread import open_sync_thread


async def test_results_and_errors_come_back_from_one_other_thread() -> None:
    async with open_sync_thread() as thread:
        first = await thread.do(threading.get_ident)
        with pytest.raises(ZeroDivisionError):
            await thread.do(lambda: 1 // 0)
        assert await thread.do(threading.get_ident) == first != threading.get_ident()


async def test_a_call_that_has_begun_is_finished_before_a_cancellation_counts() -> None:
    begun, finish = trio.Event(), threading.Event()
    token, finished = trio.lowlevel.current_trio_token(), []

    def call() -> int:
        token.run_sync_soon(begun.set)
        finish.wait(60)
        return 7

    async def caller() -> None:
        async with open_sync_thread() as thread:
            finished.append(await thread.do(call))
            await thread.do(lambda: finished.append(8))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller)
        await begun.wait()
        nursery.cancel_scope.cancel()
        token.run_sync_soon(finish.set)
    assert finished == [7]


async def test_the_thread_has_ended_when_the_context_is_left() -> None:
    before = threading.active_count()
    async with open_sync_thread() as thread:
        await thread.do(int)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
