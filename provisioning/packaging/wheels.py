"""Libraries for another processor: pip takes their wheels by the digests of a lock file, and runs nothing of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from provisioning.errors import ProvisioningError

GLIBC = range(17, 37)  # wheels for glibc 2.17 to 2.36, which is Debian bookworm's


def fetch(target: Path, lock: Path, machine: str, python: str) -> None:
    """Install the locked libraries for another processor and Python. Raises ProvisioningError when pip cannot."""
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    words += [
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--implementation=cp",
        f"--python-version={python}",
    ]
    words += [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC] + [f"--platform=manylinux2014_{machine}"]
    words += ["-r", str(lock), "--target", str(target)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ProvisioningError("E303", f"no libraries for Python {python} on {machine}: {last}")
