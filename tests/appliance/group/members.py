"""Members of a group in one process for tests: real stores, files, TLS and sockets."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from appliance.group.consensus_driver import ConsensusDriver
from appliance.group.leadership import LEADER
from appliance.group.links.directory import MemberAddress
from appliance.group.links.link import LinkPace
from appliance.group.member_plan import GroupPlan
from appliance.group.opening import open_member
from appliance.group.witness import run_witness
from netstack.serving.server import open_listeners
from storage_driver.consensus.rules import Rules
from storage_driver.files.disk import RealDisk
from storage_driver.record import MessageQueue
from storage_driver.store import MessageStore, open_store
from tests.appliance.group.certificates import certificates
from tests.storage_driver.test_store import Clock, bodies, message, small

PACE = LinkPace(ping_s=0.2, silence_s=3.0, handshake_s=3.0)
MANUAL = Rules(elections="manual", acknowledge="both", scale=0.25)
QUEUE = MessageQueue("T", 0)


class RunningMember:
    """A member that runs; `end` cancels it, as a crash does: nothing is saved."""

    def __init__(self, store: MessageStore, driver: ConsensusDriver, end: Callable[[], None], gone: trio.Event) -> None:
        self.store, self.driver, self.end, self.gone = store, driver, end, gone

    def put(self, *names: bytes) -> int:
        """Append messages, return the log offset just past them."""
        return max(self.store.put(message(name)).end for name in names)

    async def put_committed(self, *names: bytes) -> int:
        end = self.put(*names)
        await self.store.wait_committed(end)
        return end

    def leads(self) -> bool:
        return self.driver.leadership.current.role == LEADER and self.driver.leadership.current.ready

    async def bodies(self) -> list[bytes]:
        return await bodies(self.store)


class Group:
    """Members by name; their listeners stay open, so that a member comes back at its address."""

    def __init__(self, folder: Path, nursery: trio.Nursery, rules: Rules) -> None:
        self._folder, self._nursery, self._rules = folder, nursery, rules
        self.listeners: dict[str, list[trio.SocketListener]] = {}
        self.running: dict[str, RunningMember] = {}
        self.settings: dict[str, object] = {}

    async def listen(self, *names: str) -> None:
        for name in names:
            self.listeners[name] = await open_listeners("127.0.0.1", 0)

    def plan(self, member: str) -> GroupPlan:
        members = {
            name: MemberAddress("127.0.0.1", listeners[0].socket.getsockname()[1], f"{name}:10911", name == "w")
            for name, listeners in self.listeners.items()
        }
        return GroupPlan("press", member, members, self._rules, PACE)

    async def start(self, *names: str) -> list[RunningMember]:
        """Start members, return them."""
        for name in names:
            self.running[name] = await self._nursery.start(self._run, name)
        return [self.running[name] for name in names]

    async def _run(self, name: str, task_status: trio.TaskStatus[RunningMember]) -> None:
        root = self._folder / name
        config = small(root, shared=True, copies_only="it does not lead", **self.settings)
        gone = trio.Event()
        with trio.CancelScope() as scope:
            async with open_store(config, now_ms=Clock()) as store, trio.open_nursery() as nursery:
                made = await trio.to_thread.run_sync(
                    partial(
                        open_member,
                        self.plan(name),
                        store,
                        disk=RealDisk(),
                        root=config.root,
                        certificates=certificates() / name,
                        committed=store.committed,
                    )
                )
                ended = trio.Event()

                def end() -> None:
                    scope.cancel()

                nursery.start_soon(made.run, self.listeners[name])
                task_status.started(RunningMember(store, made.driver, end, gone))
                await ended.wait()
        gone.set()

    async def start_witness(self, name: str) -> None:
        """Start the member that holds no messages."""
        running = partial(run_witness, self.plan(name), self._folder / name, certificates() / name)
        self._nursery.start_soon(running, self.listeners[name])

    async def stop(self, name: str) -> None:
        """End a member at once; its port stays, and answers nobody."""
        port = self.listeners[name][0].socket.getsockname()[1]
        member = self.running.pop(name)
        member.end()
        await member.gone.wait()
        self.listeners[name] = await open_listeners("127.0.0.1", port)


@asynccontextmanager
async def group(folder: Path, *names: str, rules: Rules = MANUAL) -> AsyncIterator[Group]:
    """Members of a group that are started one by one."""
    async with trio.open_nursery() as nursery:
        made = Group(folder, nursery, rules)
        await made.listen(*names)
        yield made
        nursery.cancel_scope.cancel()
