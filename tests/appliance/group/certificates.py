"""Certificates of a group for tests: made once in a run of the tests, by the openssl program."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from uplink_spark.centre.certs import make_ca, make_member

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl"
)


@cache
def certificates(group: str = "press", members: tuple[str, ...] = ("a", "b", "c", "w")) -> Path:
    """Return a folder with a folder of box.crt, box.key, ca.crt for each member."""
    site = Path(mkdtemp(prefix="group-certs-"))
    make_ca(site)
    for member in members:
        folder = site / member
        folder.mkdir()
        (folder / "ca.crt").write_bytes((site / "ca.crt").read_bytes())
        make_member(folder, group, member, ca=site)
    return site
