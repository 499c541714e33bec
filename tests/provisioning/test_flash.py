import gzip
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from provisioning.errors import ProvisioningError
from provisioning.flash import BLOCK, TargetDisk, check_facts, check_image, check_target, examine, write_image

IMAGE = os.urandom(BLOCK) + bytes(3 * BLOCK) + os.urandom(5000)


def quiet(stage: str, done: int, total: int) -> None:
    return None


def code_of(disk: TargetDisk, *, force: bool = False) -> str:
    with pytest.raises(ProvisioningError) as caught:
        check_target(disk, force=force)
    return caught.value.code


@pytest.mark.parametrize("suffix", [".img", ".img.gz"])
def test_an_image_is_written_read_back_and_its_zeros_are_left_out(tmp_path: Path, suffix: str) -> None:
    image = tmp_path / f"box{suffix}"
    image.write_bytes(gzip.compress(IMAGE) if suffix.endswith(".gz") else IMAGE)
    written = write_image(image, examine(tmp_path / "disk.img"), quiet)
    assert (tmp_path / "disk.img").read_bytes() == IMAGE
    assert (written.size, written.real) == (len(IMAGE), BLOCK + 5000)
    assert written.sha256 == hashlib.sha256(IMAGE).hexdigest()
    assert (tmp_path / "disk.img").stat().st_blocks * 512 < 2 * BLOCK


def test_a_damaged_archive_is_e303(tmp_path: Path) -> None:
    image = tmp_path / "box.img.gz"
    image.write_bytes(gzip.compress(IMAGE)[:-2000])
    with pytest.raises(ProvisioningError) as caught:
        write_image(image, examine(tmp_path / "disk.img"), quiet)
    assert caught.value.code == "E303"


@pytest.mark.parametrize("suffix", [".img", ".img.gz", ".img.xz", ".img.zst"])
def test_an_image_is_known_by_its_partition_table_however_it_is_packed(tmp_path: Path, suffix: str) -> None:
    disk, other = bytes(512) + b"EFI PART" + os.urandom(300_000), os.urandom(300_000)
    for name, data in (("disk", disk), ("other", other)):
        (tmp_path / f"{name}.img").write_bytes(data)
        if suffix != ".img":
            tool = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}[suffix[4:]]
            if shutil.which(tool) is None:
                pytest.skip(f"no {tool} here")
            subprocess.run([tool, "-kqf", str(tmp_path / f"{name}.img")], check=True)
    check_image(tmp_path / f"disk{suffix}")
    (tmp_path / f"link{suffix}").symlink_to(tmp_path / f"disk{suffix}")
    check_image(tmp_path / f"link{suffix}")
    with pytest.raises(ProvisioningError, match="not a disk image"):
        check_image(tmp_path / f"other{suffix}")


def test_facts_that_no_disk_can_hold_are_refused_before_anything_is_written() -> None:
    with pytest.raises(ProvisioningError) as caught:
        check_facts({"serial": "RBX 7"})
    assert caught.value.code == "E301"
    check_facts({})


def disk(**more: object) -> TargetDisk:
    facts: dict[str, object] = {"path": Path("/dev/sdx"), "size": 8 << 30, "model": "USB", "removable": True}
    facts |= {"mounted": (), "is_block": True} | more
    return TargetDisk(**facts)  # type: ignore[arg-type]


def test_a_mounted_a_fixed_and_a_huge_disk_are_refused() -> None:
    check_target(disk(), force=False)
    assert code_of(disk(mounted=("/home",)), force=True) == "E301"
    assert code_of(disk(removable=False)) == "E301"
    assert code_of(disk(size=3 << 40)) == "E301"
    check_target(disk(removable=False, size=3 << 40), force=True)


def test_a_folder_or_a_terminal_is_no_disk(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(ProvisioningError):
            examine(path)
