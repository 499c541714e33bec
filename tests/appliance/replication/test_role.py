"""Which role the settings give a box, and what others see of it."""

from pathlib import Path

from appliance.broker.broker_tables import make_tables
from appliance.broker.tables.arrivals import Arrivals
from appliance.configuration.config import load_config
from appliance.replication.master import Master
from appliance.replication.role import make_role
from appliance.replication.slave import Slave
from storage_driver.store import open_store
from tests.appliance.box import FACTS
from tests.storage_driver.test_store import Clock, small


async def test_a_master_has_a_port_and_a_slave_an_id(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        for text, kind, seen in (
            ('role = "master"\nslaves = ["10.0.0.0/8"]', Master, (0, 10912, True)),
            ('role = "slave"\nmaster = "m:10911"\nbroker_id = 2', Slave, (2, 0, False)),
        ):
            config = load_config(f"[listen]\nhost = '0.0.0.0'\n[replication]\n{text}\n", source="test", facts=FACTS)
            tables = make_tables(config, store, Arrivals(1, store.max_offset), now_ms=Clock())
            role = make_role(config, store, tables, 10912, now_ms=Clock())
            assert isinstance(role, kind)
            assert (role.broker_id, role.ha_port, role.own_slaves is not None) == seen
            assert role.addresses("h:1")[role.broker_id] == "h:1"
            assert role.told()["role"] == config.replication.role
            assert all(value >= 0 for _, value, _ in role.series())
