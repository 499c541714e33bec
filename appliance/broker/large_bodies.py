"""Bodies that take more than some milliseconds to read: a thread reads them, while the loop serves others."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

from netstack.errors import Refused

T = TypeVar("T")


class Carrier(Protocol):
    """What brought a body, which is taken away from it."""

    body: bytes


async def read_in_thread(read: Callable[[bytes], T], carrier: Carrier) -> T:
    """Return what a body says; the carrier has none then. Raises Refused as `read` does."""

    def run() -> T | Refused:
        """A refusal is no exception here: a traceback from a thread is a cycle, and would keep bodies of some MiB."""
        body, carrier.body = carrier.body, b""
        try:
            return read(body)
        except Refused as exc:
            exc.__cause__ = exc.__context__ = None  # they have tracebacks of their own
            return exc.with_traceback(None)

    found = await trio.to_thread.run_sync(run)
    if isinstance(found, Refused):
        try:
            raise found
        finally:
            del found
    return found
