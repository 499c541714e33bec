import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_path import import_path
from uplink_spark.centre.zone_files.shard_lock import ShardLock
from uplink_spark.errors import LandingError

HOLDER = """
import sys
from pathlib import Path
from uplink_spark.centre.zone_files.shard_lock import ShardLock
lock = ShardLock(Path(sys.argv[1]), "shard 0001 of zone")
lock.take()
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_holds_it_and_the_next_one_is_told_which(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    environment = {**os.environ, "PYTHONPATH": import_path()}
    command = [sys.executable, "-c", HOLDER, str(path)]
    lock = ShardLock(path, "shard 0001 of zone")
    with subprocess.Popen(command, stdin=-1, stdout=-1, env=environment, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LandingError, match=f"of zone is held by pid {holder.pid} on .*; stop that gateway"):
            lock.take()
        holder.communicate("")
    lock.take()
    lock.check()
    path.write_text("pid 1 on another machine\n")
    with pytest.raises(LandingError, match="has given the lock to another gateway"):
        lock.check()
    lock.close()
