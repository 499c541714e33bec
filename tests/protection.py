"""Files that nobody may write: by chattr +i for root, whom no mode keeps off, by their mode for everybody else."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def protected(path: Path) -> Iterator[None]:
    """Keep everybody from writing a file, or from making names in a folder."""
    mode = path.stat().st_mode
    if os.geteuid() == 0:
        said = subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False)
        if said.returncode:
            pytest.skip("this file system has no chattr +i: try another TMPDIR")
    else:
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        if os.geteuid() == 0:
            subprocess.run(["chattr", "-i", str(path)], check=True)
        else:
            path.chmod(mode)
