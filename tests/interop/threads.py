"""Threads that work while a test does something else."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def threads_running(calls: Iterable[Callable[[], None]], stop: threading.Event, *, end_s: float = 30) -> Iterator[None]:
    """Run each call in a thread of its own; behind the context they are told to stop, and have `end_s` for it."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(end_s)
