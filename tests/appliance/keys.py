"""A box that only keys open, and two of them: a device's and an administrator's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from appliance.access.access import accounts_path, changing
from appliance.broker.access.accounts import Account, Accounts, perm_of
from netstack.serving.channel import Channel
from netstack.wire.acl import sign
from netstack.wire.command import RemotingCommand
from tests.appliance.box import Box, connected, running_box

KEYS_MODE = "[access]\nmode = 'keys'\nadmin = 'keys'\n"
SECRET, ADMIN_SECRET = "device-secret", "admin-secret"
REMARK = "org.apache.rocketmq.acl.common.AclException: "
PUB, SUB = perm_of("PUB"), perm_of("SUB")


def write(data: Path, *accounts: Account, white: tuple[str, ...] = ()) -> Path:
    path = accounts_path(data)
    data.mkdir(parents=True, exist_ok=True)
    with changing(path) as replace:
        replace(Accounts({each.name: each for each in accounts}, white))
    return path


DEVICE = Account("device-1", SECRET, topics={"T": PUB | SUB, "SUBONLY": SUB}, groups={"CG": SUB})
ADMIN = Account("admin-1", ADMIN_SECRET, admin=True)


def signed(command: RemotingCommand, name: str = "device-1", secret: str = SECRET) -> RemotingCommand:
    sign(command, name, secret)
    return command


@asynccontextmanager
async def guarded(data: Path, *accounts: Account, toml: str = KEYS_MODE) -> AsyncIterator[tuple[Box, Channel]]:
    write(data, *(accounts or (DEVICE, ADMIN)))
    async with running_box(data, toml) as box, connected(box) as line:
        yield box, line


async def outcome(line: Channel, command: RemotingCommand) -> tuple[int, str]:
    answer = await line.ask(command)
    return answer.code, (answer.remark or "").removeprefix(REMARK)
