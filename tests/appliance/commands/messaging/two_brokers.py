"""Two brokers of one cluster, in this process, and what administers both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from netstack.client.admin import Admin
from netstack.client.instance import Instance
from tests.appliance.box import running_box


@asynccontextmanager
async def two_brokers(folder: Path) -> AsyncIterator[Admin]:
    """Run the brokers a and b; the NameServer of a knows both."""
    async with running_box(folder / "a", name="a") as first:
        toml = f"[namesrv]\nregister_at = ['127.0.0.1:{first.namesrv_port}']\n"
        async with running_box(folder / "b", toml, name="b"), Instance(f"127.0.0.1:{first.namesrv_port}") as instance:
            admin = Admin(instance)
            with trio.fail_after(30):
                while len(await admin.brokers()) < 2:  # noqa: ASYNC110 - of another process
                    await trio.sleep(0.05)
            yield admin
