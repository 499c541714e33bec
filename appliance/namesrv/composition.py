"""Composes the name server of a box: its tables, over the topics of the box's own broker."""

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from appliance.broker.tables.saving import Saver, TableFile, load_table
from appliance.broker.tables.topics import TopicTable
from appliance.configuration.settings import Config
from appliance.namesrv.address import AnsweredAddress
from appliance.namesrv.handlers import NamesrvState
from appliance.namesrv.kv_config import KvConfig, KvConfigDamaged
from appliance.namesrv.own_broker import own_broker
from appliance.namesrv.route_table import RouteTable
from netstack.wire.bodies_route import properties_text
from storage_driver.files.disk import Disk
from storage_driver.files.layout_repair import free_tables
from storage_driver.files.state_file import StateFile

if TYPE_CHECKING:
    from appliance.replication.role import ReplicationRole

log = logging.getLogger("appliance")


def kv_file(data: Path, disk: Disk) -> StateFile:
    """Return the file of keys and values, its way free."""
    file = StateFile(disk, data / "namesrv" / "kvConfig.json")
    for text in free_tables(disk, data / "store", file.path.parent):
        log.error("event=set_aside reason=%r", text)
    return file


def namesrv_state(
    config: Config,
    topics: TopicTable,
    answered: AnsweredAddress,
    file: TableFile,
    *,
    role: "ReplicationRole | None" = None,
) -> NamesrvState:
    """Return the name server's tables; the box's own broker is a row that asks the topic table."""
    try:
        kv = KvConfig.from_object(load_table(file, "kv") or None)
    except KvConfigDamaged as exc:
        log.error("event=table_damaged table=kv reason=%r next_step=restore_it_from_a_backup", str(exc))
        kv = KvConfig()
    return NamesrvState(
        routes=RouteTable(own_broker(topics, config.broker.permission, addresses=role.addresses if role else None)),
        kv=kv,
        kv_saver=Saver(file, kv.to_object),
        address=lambda peer: answered(peer.local[0], peer.remote[0]),
        now_s=trio.current_time,
        order_messages=config.namesrv.order_messages,
        properties=partial(_namesrv_properties, config),
        slaves=role.own_slaves if role else None,
    )


def _namesrv_properties(config: Config) -> str:
    from appliance.apache_names import namesrv_properties  # tools ask, clients do not

    return properties_text(namesrv_properties(config)).decode()
