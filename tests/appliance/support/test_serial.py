"""`rocketbox support --over-serial` at the bench, against a box that is a folder at a real pseudo terminal."""

from __future__ import annotations

import json

import pytest

from tests.appliance.support.test_bundle import files_of
from tests.appliance.technician import Bench


@pytest.mark.slow
def test_the_owner_fetches_the_bundle_a_stranger_does_not(bench: Bench) -> None:
    words = ("support", "--over-serial", "--port", bench.port, "--to", "box.tar.gz", "--json")
    unclaimed = bench.run(*words)
    assert unclaimed.returncode == 4, unclaimed.stderr
    assert "E201" in unclaimed.stdout + unclaimed.stderr
    assert bench.run("provision", "--port", bench.port, "--name", "press-007", "--yes").returncode == 0
    secret = json.loads((bench.box / "etc/rocketbox/owner").read_text())["secret"]
    fetched = bench.run(*words)
    assert fetched.returncode == 0, fetched.stderr
    files = files_of((bench.folder / "box.tar.gz").read_bytes())
    assert 'name = "press-007"' in files["rocketbox.toml"]
    assert json.loads(files["manifest.json"])["cap_bytes"] == 2 << 20
    assert secret not in str(files)
    other = bench.folder / "other"
    other.write_text("ff" * 32)
    assert bench.run(*words, "--secret", str(other)).returncode == 4
