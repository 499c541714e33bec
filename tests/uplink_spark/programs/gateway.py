"""The gateway with what a test wants of it: small manifest files, and a sync that stalls.

MANIFEST_ENTRIES=8 begins a new manifest file after 8 entries. SLOW_SYNC=3:PATH lets the third sync of a pack wait for
that file.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from uplink_spark.__main__ import main
from uplink_spark.centre import hub
from uplink_spark.centre.zone_files import landing


def stall(setting: str) -> None:
    """Let os.fsync of packs stall at its n-th call."""
    real, calls = os.fsync, [0]
    at, _, path = setting.partition(":")

    def fsync(fd: Any) -> None:
        calls[0] += os.readlink(f"/proc/self/fd/{fd}").endswith(".pack.tmp")
        if calls[0] == int(at):
            calls[0] += 1
            print("stalled", flush=True)
            while not os.path.exists(path):
                time.sleep(0.01)
        real(fd)

    os.fsync = fsync


if __name__ == "__main__":
    hub.PAUSE_RATIO = hub.FULL_RATIO = 2.0  # how full the disk of this machine is, is not what a test is about
    landing.FILE_ENTRIES = int(os.environ.get("MANIFEST_ENTRIES", "65536"))  # type: ignore[attr-defined]
    if "SLOW_SYNC" in os.environ:
        stall(os.environ["SLOW_SYNC"])
    sys.exit(main())
