from dataclasses import replace
from pathlib import Path

import pytest

from provisioning.box import Box
from provisioning.bundle import InstallOptions, Target, check_fits, check_parts, extract_part, newer, open_bundle
from provisioning.errors import ProvisioningError
from provisioning.testing import folder_box, signed_bundle

HERE = Target("x1", "1.3.2")


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return folder_box(tmp_path / "box")


def refusal(path: Path, keys: Path) -> str:
    with pytest.raises(ProvisioningError) as caught:
        check_parts(path, open_bundle(path, keys))
    return caught.value.code


def test_what_was_signed_is_read_back_part_by_part(tmp_path: Path, box: Box) -> None:
    path = signed_bundle(tmp_path, box)
    manifest = open_bundle(path, box.files.trusted_keys)
    assert (manifest.version, manifest.models, manifest.key_id) == ("1.4.0", ("x1",), "current")
    check_parts(path, manifest)
    check_fits(manifest, HERE)
    with (tmp_path / "app").open("wb") as out:
        extract_part(path, manifest.parts[0], out)
    assert (tmp_path / "app").read_bytes() == (tmp_path / "app-1.4.0.tar.xz").read_bytes()
    assert path.read_bytes()[:4] == b"RBX1"


def test_a_flipped_bit_anywhere_is_refused(tmp_path: Path, box: Box) -> None:
    path = signed_bundle(tmp_path, box)
    whole = path.read_bytes()
    for at in (0, 5, 20, 8 + int.from_bytes(whole[4:8], "big") + 3, len(whole) - 1):
        spoiled = bytearray(whole)
        spoiled[at] ^= 1
        path.write_bytes(spoiled)
        assert refusal(path, box.files.trusted_keys) == "E303"


@pytest.mark.parametrize("length", [0, 3, 8, 100, -1])
def test_a_truncated_bundle_is_refused(tmp_path: Path, box: Box, length: int) -> None:
    path = signed_bundle(tmp_path, box)
    path.write_bytes(path.read_bytes()[:length])
    assert refusal(path, box.files.trusted_keys) == "E303"


def test_bytes_behind_the_last_part_are_refused(tmp_path: Path, box: Box) -> None:
    path = signed_bundle(tmp_path, box)
    path.write_bytes(path.read_bytes() + b"x")
    assert refusal(path, box.files.trusted_keys) == "E303"


def test_a_key_the_box_does_not_trust_is_refused_and_the_next_key_is_accepted(tmp_path: Path, box: Box) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    signed_bundle(ours, box)
    foreign = signed_bundle(theirs)
    assert refusal(foreign, box.files.trusted_keys) == "E303"
    (box.files.trusted_keys / "next.pem").write_bytes((theirs / "current.pem").read_bytes())
    assert open_bundle(foreign, box.files.trusted_keys).version == "1.4.0"


def test_without_any_trusted_key_nothing_is_accepted(tmp_path: Path, box: Box) -> None:
    with pytest.raises(ProvisioningError, match=r"no trusted key in .*: put the signer.s public key there"):
        open_bundle(signed_bundle(tmp_path), box.files.trusted_keys)


@pytest.mark.parametrize(
    ("target", "wishes", "code"),
    [
        (replace(HERE, model="z9"), InstallOptions(), "E304"),
        (replace(HERE, arch="riscv64"), InstallOptions(), "E304"),
        (replace(HERE, python="3.99"), InstallOptions(), "E304"),
        (replace(HERE, version="1.5.0"), InstallOptions(), "E305"),
        (replace(HERE, version="1.5.0"), InstallOptions(downgrade=True), None),
        (replace(HERE, bad=("1.4.0",)), InstallOptions(), "E305"),
        (replace(HERE, bad=("1.4.0",)), InstallOptions(retry=True), None),
        (replace(HERE, version="0.9.0"), InstallOptions(), "E305"),
        (replace(HERE, free_bytes=1000), InstallOptions(), "E301"),
        (replace(HERE, version="-"), InstallOptions(), None),
        (HERE, InstallOptions(), None),
    ],
)
def test_a_bundle_for_another_box_or_time_is_refused(
    tmp_path: Path, box: Box, target: Target, wishes: InstallOptions, code: str | None
) -> None:
    manifest = open_bundle(signed_bundle(tmp_path, box), box.files.trusted_keys)
    if code is None:
        check_fits(manifest, target, wishes)
        return
    with pytest.raises(ProvisioningError) as caught:
        check_fits(manifest, target, wishes)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("1.10.0", "1.9.9", True),
        ("1.4.0", "1.4.0", False),
        ("1.4.0", "1.4.0-rc1", True),
        ("1.4.0.1", "1.4.0", True),
        ("-", "1.0", False),
        ("1.0", "-", False),
    ],
)
def test_versions_compare_by_number(one: str, other: str, expected: bool) -> None:
    assert newer(one, other) is expected


def test_the_archive_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    signed_bundle(tmp_path / "one")
    signed_bundle(tmp_path / "two")
    packed = [tmp_path / name / "app-1.4.0.tar.xz" for name in ("one", "two")]
    assert packed[0].read_bytes() == packed[1].read_bytes()
