"""A witness is a small process: it loads consensus, links and TLS, and nothing of a box."""

import json
import os
import subprocess
import sys

OF_A_BOX = (
    *("appliance.serve", "appliance.broker", "appliance.access", "appliance.replication", "appliance.group.opening"),
    *("storage_driver.store", "storage_driver.log.commit_log", "storage_driver.queues", "storage_driver.recovery"),
    *("uplink_spark.wire.batch", "zstandard", "orjson", "rocketbox__mypyc"),
    *("isal", "shutil", "tempfile", "bz2", "lzma", "importlib.resources"),
)
LOADED = """
import json, sys
from appliance.__main__ import main
try:
    main(["witness", "--help"])
except SystemExit:
    import appliance.group.witness
    sys.stderr.write(json.dumps({name: module is not None for name, module in sys.modules.items()}))
"""


def test_a_witness_loads_nothing_of_a_box() -> None:
    environment = {**os.environ, "ROCKETBOX_PURE": "0"}
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, env=environment)
    loaded = [name for name, module in json.loads(done.stderr).items() if module]
    assert "storage_driver.consensus.core" in loaded
    assert [name for name in loaded if name.startswith(OF_A_BOX)] == []
