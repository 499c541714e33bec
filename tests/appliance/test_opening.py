"""What is settled before the store opens."""

from pathlib import Path

from appliance.access.guard import make_guard
from appliance.configuration.config import load_config
from appliance.opening import ServeContext, never
from appliance.ports import open_ports
from storage_driver.record import encode_host
from tests.appliance.box import FACTS
from tests.waiting import Clock


async def test_a_box_without_systemd_keeps_its_sockets_in_the_data_folder(tmp_path: Path) -> None:
    config = load_config("[listen]\nbroker_port = 0\nnamesrv_port = 0\n", source="test", facts=FACTS)
    ports, clock = await open_ports(config, {}), Clock()
    guard = make_guard(config, tmp_path, now_ms=clock)
    context = ServeContext(config, tmp_path, ports, "127.0.0.1", guard, None, clock, lambda: True)
    assert context.runtime == tmp_path / "run"
    assert context.broker_address == f"127.0.0.1:{ports.broker_port}"
    assert context.store_host == encode_host("127.0.0.1", ports.broker_port)
    for listener in (*ports.broker, *ports.namesrv):
        await listener.aclose()


def test_while_a_box_starts_nothing_is_deleted() -> None:
    assert not never(0, 1 << 60)
