"""What `rocketbox serve` says where its data folder cannot be used."""

import errno
import os
from pathlib import Path

import pytest

from appliance.commands.box.serve import disk_trouble


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (errno.EROFS, "its file system takes no writes: see dmesg"),
        (errno.EACCES, "it must be writable for user"),
        (errno.ENOSPC, "free space and files there"),
        (errno.ENOTDIR, "check what is at this path"),
    ],
)
def test_the_next_step_is_that_of_the_cause(code: int, step: str) -> None:
    said = disk_trouble(OSError(code, os.strerror(code), "/data/watchdog/planned"), Path("/data"))
    assert said.startswith(f"/data/watchdog/planned: {os.strerror(code)}; {step}")
