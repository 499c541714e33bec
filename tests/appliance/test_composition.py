"""The name server put together: a damaged file of keys and values prevents no start."""

from pathlib import Path

from appliance.configuration.config import load_config
from appliance.namesrv.address import AnsweredAddress
from appliance.namesrv.composition import kv_file, namesrv_state
from storage_driver.files.disk import RealDisk
from tests.appliance.box import FACTS
from tests.appliance.test_own_broker import topic_table


def test_keys_and_values_that_are_none_are_left_out(tmp_path: Path) -> None:
    config = load_config("", source="test", facts=FACTS)
    file = kv_file(tmp_path, RealDisk())
    file.save({"configTable": {"N": {"k": 5}}})
    state = namesrv_state(config, topic_table(), AnsweredAddress((), 1, dict, "h"), file)
    assert state.kv.namespace("N") is None
    file.save({"configTable": {"N": {"k": "v"}}})
    state = namesrv_state(config, topic_table(), AnsweredAddress((), 1, dict, "h"), file)
    assert state.kv.get("N", "k") == "v"
