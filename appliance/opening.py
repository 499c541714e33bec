"""What is settled before the store opens, and its opening; where nothing may be written, from a layer in memory."""

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from appliance.access.guard import Guard
from appliance.broker.tables.arrivals import Arrivals
from appliance.configuration.parts import store_config
from appliance.configuration.settings import Config
from appliance.ports import Ports
from appliance.supervision import Supervision
from netstack.serving.addresses import host_port
from storage_driver.errors import StoreRefused, StoreUnwritable
from storage_driver.files.disk import Disk, RealDisk
from storage_driver.files.layout_repair import is_segment_name
from storage_driver.files.memory_layer import MemoryLayer
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import encode_host
from storage_driver.store import MessageStore, open_store

log = logging.getLogger("appliance")
SERVICE_USER = "rocketbox"  # systemd/sysusers.conf


class ServeContext(NamedTuple):
    """What is settled before the store opens."""

    config: Config
    data: Path
    ports: Ports
    own: str  # address of this machine
    guard: Guard
    supervision: Supervision | None
    now_ms: Callable[[], int]
    clock_trusted: Callable[[], bool]

    @property
    def broker_address(self) -> str:
        return host_port(self.own, self.ports.broker_port)

    @property
    def store_host(self) -> bytes:
        return encode_host(self.own, self.ports.broker_port)

    @property
    def runtime(self) -> Path:
        return self.supervision.runtime if self.supervision else self.data / "run"


def never(base: int, end: int) -> bool:
    """While the box starts nothing is deleted: who still needs the log has not been asked yet."""
    return False


def forgotten(done: int, total: int) -> None:
    """Nobody is told how far the recovery is."""


def tell_unreadable(supervision: Supervision | None, count: int) -> None:
    """Say how many blocks the disk has not given back so far: each may take it seconds. Called in a thread."""
    if supervision is not None:
        supervision.progress[2] = count
    if count & (count - 1) == 0:
        log.warning("event=unreadable_blocks count=%d reason='the start reads around them, which takes time'", count)


def refuse_apache_folder(data: Path) -> None:
    """Raise StoreRefused for a data folder that is itself the store of another broker, before anything is written.

    A box would not see its messages. A folder in which a box has served stays as it is.
    """
    if is_foreign_store(data) and not (data / "store").exists():
        above = data.absolute().parent / f"{data.absolute().name}-box"
        raise StoreRefused(
            f"{data} is the store of an Apache broker (it has commitlog/), a box looks for its own in {data}/store: "
            f"stop that broker, back the folder up, then `mkdir {above}; mv {data} {above}/store` and serve with "
            f"--data {above}; or choose another folder"
        )


def refuse_root(data: Path) -> None:
    """Raise StoreRefused where root would leave files that the service, whose folder this is, cannot write."""
    if os.geteuid() == 0 and data.is_dir() and _owner_of(data) == SERVICE_USER:
        raise StoreRefused(
            f"{data} is the folder of the service, which runs as {SERVICE_USER} and could not write what root leaves "
            "there: `systemctl start rocketbox` starts it; or choose another data folder: --data DIR"
        )


def _owner_of(folder: Path) -> str:
    try:
        return folder.owner()
    except KeyError:  # a user without a name
        return ""


def is_foreign_store(root: Path) -> bool:
    """Tell whether another broker than a box made the store in a folder. Blocks. Raises OSError."""
    log = root / "commitlog"
    return log.is_dir() and not (root / "rocketbox").exists() and any(is_segment_name(p.name) for p in log.iterdir())


def _tell_foreign(root: Path) -> None:
    if not is_foreign_store(root):
        return
    text = "event=store_taken_over folder=%s reason='an Apache broker made it' next_step=%r"
    step = "what is in it is served; keep that broker off it while the box runs; see docs/operate.md"
    log.warning(text, root, step)


@asynccontextmanager
async def open_box_store(
    context: ServeContext, arrivals: Arrivals
) -> AsyncIterator[tuple[MessageStore, Disk, ServeContext]]:
    """Open the store; where a file of it is protected against writing it is read, from a layer in memory."""
    supervision = context.supervision
    reason = supervision.read_only if supervision else None
    facts = supervision.start_facts() if supervision else {}
    receipts = await trio.to_thread.run_sync(_receipts, context) if context.config.uplink.gateway else {}
    config = store_config(context.config, context.data, context.store_host, facts)
    opening = partial(
        open_store,
        now_ms=context.now_ms,
        arrived=arrivals.arrived,
        watched=arrivals.watched,
        clock_trusted=context.clock_trusted,
        retain=never,
        progress=supervision.recovering if supervision else forgotten,
        unreadable=partial(tell_unreadable, supervision),
        others=receipts,
    )
    await trio.to_thread.run_sync(_tell_foreign, context.data / "store")
    async with AsyncExitStack() as stack:
        disk: Disk = RealDisk() if reason is None else MemoryLayer()
        try:
            store = await stack.enter_async_context(opening(config._replace(read_only=reason is not None), disk=disk))
        except StoreUnwritable as exc:
            if reason is not None:
                raise
            disk, reason = MemoryLayer(), str(exc)
            store = await stack.enter_async_context(opening(config._replace(read_only=True), disk=disk))
            store.verdict.verdict = "read_only"
            store.verdict.reasons.append(reason)
            supervision = supervision and supervision.protected(reason)
        if reason is not None:
            log.error("event=read_only reason=%r", reason)
            store.seal(f"this box is read-only: {reason}")
        for text in store.unreadable():
            log.error("event=unreadable reason=%r next_step='rocketbox loss, rocketbox doctor'", text)
        yield store, disk, context._replace(supervision=supervision)


def _receipts(context: ServeContext) -> dict[str, int]:
    """Return how far the gateway has receipted this log: what it has was durable here. Blocks."""
    from uplink_spark.box.receipts.ledger import Ledger

    try:
        return {"receipts of the gateway": Ledger(context.data / "store" / "rocketbox").receipted_to()}
    except OSError:  # the uplink says what is wrong with it
        return {}
