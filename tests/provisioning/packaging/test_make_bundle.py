"""`make bundle`: a root file system becomes a signed bundle that opens under its key and no other."""

import argparse
from pathlib import Path

import pytest

from provisioning.bundle import make_key, open_bundle
from provisioning.errors import ProvisioningError
from provisioning.packaging import make_bundle
from provisioning.packaging.make_bundle import make


def options(tmp_path: Path, **more: object) -> argparse.Namespace:
    root = tmp_path / "root.img"
    root.write_bytes(b"r" * 5000)
    given = {"work": tmp_path / "work", "version": "1.4.0", "key": None, "models": "x1,,x2", "oldest": "1.2"}
    return argparse.Namespace(**given | {"python": "/usr/bin/python3", "root": root, "arch": "amd64"} | more)


def test_the_bundle_says_what_was_asked_and_opens_under_its_key(tmp_path: Path) -> None:
    out = make(options(tmp_path))
    assert out.name == "rocketbox-1.4.0-image.rbx"
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "test-signing.pem").write_bytes((tmp_path / "work/test.pem").read_bytes())
    manifest = open_bundle(out, keys)
    assert (manifest.version, manifest.models, manifest.oldest) == ("1.4.0", ("x1", "x2"), "1.2")
    assert (manifest.key_id, [part.kind for part in manifest.parts]) == ("test-signing", ["root"])
    assert manifest.parts[0].size == 5000
    make_key(tmp_path / "other.pem", keys / "test-signing.pem.new")
    (keys / "test-signing.pem.new").replace(keys / "test-signing.pem")
    with pytest.raises(ProvisioningError):
        open_bundle(out, keys)


def test_a_bundle_for_another_processor_says_so_in_its_name_and_in_what_is_signed(tmp_path: Path) -> None:
    out = make(options(tmp_path, arch="arm64"))
    assert out.name == "rocketbox-1.4.0-arm64-image.rbx"
    keys = tmp_path / "keys"
    keys.mkdir()
    (tmp_path / "work/test.pem").rename(keys / "test-signing.pem")
    assert open_bundle(out, keys).arch == "aarch64"


def test_a_key_for_tests_is_made_once_and_kept(tmp_path: Path) -> None:
    made = make_bundle.test_key(tmp_path).read_bytes()
    assert make_bundle.test_key(tmp_path).read_bytes() == made
    assert b"PRIVATE" in made
    assert b"PRIVATE" not in (tmp_path / "test.pem").read_bytes()
