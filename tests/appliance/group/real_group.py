"""Members of a group as processes: each on ports that stay the same, with the certificates of tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from appliance import admin
from netstack.serving.channel import open_channel
from tests.appliance.box import messages_of, pull
from tests.appliance.group.certificates import certificates
from tests.interop.box import Box
from tests.waiting import until

QUEUES = 4


class RealMember(Box):
    """`python -m appliance serve` as a member; `configure` is called when all know their ports."""

    def __init__(self, data: Path) -> None:
        super().__init__(data, config="# the group follows")
        self.name = data.name

    def configure(
        self, members: "Sequence[RealMember]", more: str = "", *, elections: str = "manual", timing: float = 0.5
    ) -> None:
        """Write the configuration of this member."""
        listed = ", ".join(f'"{each.name}=127.0.0.1:{each.broker_port + 1}"' for each in members)
        (self.data.parent / f"{self.name}.toml").write_text(
            "[box]\nname = 'press'\n[store]\nsegment_mib = 8\n[replication]\nrole = 'member'\n"
            f"[group]\nmember = '{self.name}'\nmembers = [{listed}]\nelections = '{elections}'\nwait_ms = 1000\n"
            f"timing = {timing}\ncerts = '{certificates() / self.name}'\n{more}"
        )

    async def ask(self, do: str, **values: object) -> Any:
        """Return what the box answers at admin.sock."""
        path = self.data / "run" / admin.NAME
        return await trio.to_thread.run_sync(lambda: admin.ask(path, do, values, timeout_s=30))

    async def status(self) -> dict[str, Any]:
        """Return how the member stands, nothing while it does not answer."""
        try:
            return dict(await self.ask("group.status"))
        except (OSError, admin.AdminRefused, admin.AdminSilent):
            return {}

    async def serves(self) -> bool:
        return bool((await self.status()).get("serves"))


def pair_of(folder: Path, more: str = "") -> tuple[RealMember, RealMember]:
    """Return two members, not started."""
    a, b = RealMember(folder / "a"), RealMember(folder / "b")
    for each in (a, b):
        each.configure([a, b], more)
    return a, b


async def wait_for(member: RealMember, **expected: object) -> None:
    """Return once a member's status has these values."""

    async def holds() -> bool:
        status = await member.status()
        return all(status.get(key) == value for key, value in expected.items())

    with trio.fail_after(60):
        while not await holds():  # noqa: ASYNC110 another process has no event
            await trio.sleep(0.05)


async def start(*members: RealMember) -> None:
    for member in members:
        await trio.to_thread.run_sync(member.start)


def log_files(member: RealMember) -> dict[str, bytes]:
    """Return the files of a log that hold anything."""
    folder = member.data / "store" / "commitlog"
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name.isdecimal()}
    while found and not any(found[max(found)]):
        del found[max(found)]  # prepared, never written
    return found


async def bodies(member: RealMember, topic: str = "T") -> list[bytes]:
    """Return every message of a topic that a member gives to consumers."""
    found = list[bytes]()
    async with open_channel("127.0.0.1", member.broker_port) as channel:
        for queue_id in range(QUEUES):
            at = 0
            while (answer := await channel.ask(pull(topic, at, queue_id), 10)).code == 0:
                found += [message.body for message in messages_of(answer)]
                at = int(answer.ext["nextBeginOffset"])
    return found


__all__ = ["RealMember", "bodies", "log_files", "pair_of", "start", "until", "wait_for"]
