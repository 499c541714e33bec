"""The methods of the service: those that are here, those that are not, and a box without the port."""

import subprocess
import sys
from pathlib import Path

import pytest

from netstack.grpc.v2 import service_pb2
from tests.appliance.box import running_box
from tests.appliance.grpc.asking import PATH, asking, grpc_box

LOADED = """
import sys
import appliance.serve, appliance.commands.box.serve, appliance.group.opening
bad = [name for name in sys.modules if name.split(".")[0] in ("h2", "hpack", "hyperframe", "google")
       or name.startswith(("netstack.grpc", "appliance.grpc", "appliance.group.relay"))]
print(bad)
"""


async def test_methods_that_are_not_here_are_unimplemented(tmp_path: Path) -> None:
    known = set()
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        for method in service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods:
            if method.name != "Telemetry":
                found = await client.client.call(f"{PATH}{method.name}", b"", client.metadata)
                known |= {method.name} if found.status == 0 else set()
                assert found.status in (0, 12), method.name
    assert known >= {"QueryRoute", "SendMessage", "EndTransaction", "Heartbeat", "RecallMessage", "QueryAssignment"}


async def test_a_box_without_the_setting_opens_no_port(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box:
        assert box.broker_port


@pytest.mark.slow
def test_a_start_without_the_port_loads_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout
