import hashlib
import os
import resource
import shutil
from pathlib import Path

import pytest

from provisioning.errors import ProvisioningError
from provisioning.incoming import IncomingFile, make_room

BLOB = bytes(range(256)) * 400
SHA = hashlib.sha256(BLOB).hexdigest()


def test_a_file_arrives_is_read_back_and_gets_its_name(tmp_path: Path) -> None:
    one = IncomingFile(tmp_path, SHA, len(BLOB))
    one.write(BLOB)
    seen: list[int] = []
    assert one.finish(seen.append).read_bytes() == BLOB
    assert seen[-1] == len(BLOB)
    assert IncomingFile.is_whole(tmp_path, SHA)


def test_what_had_arrived_is_there_after_a_cut(tmp_path: Path) -> None:
    first = IncomingFile(tmp_path, SHA, len(BLOB))
    first.write(BLOB[:5000])
    first.close()
    second = IncomingFile(tmp_path, SHA, len(BLOB))
    assert second.have == 5000
    second.write(BLOB[5000:])
    assert second.finish().read_bytes() == BLOB


def test_a_disk_that_takes_a_part_of_the_data_is_full_and_the_data_may_come_again(tmp_path: Path) -> None:
    one, (soft, hard) = IncomingFile(tmp_path, SHA, len(BLOB)), resource.getrlimit(resource.RLIMIT_FSIZE)
    one.write(BLOB[:5000])
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(BLOB) - 100, hard))
    try:
        with pytest.raises(ProvisioningError) as caught:
            one.write(BLOB[5000:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (caught.value.code, one.have, one.part.stat().st_size) == ("E301", 5000, 5000)
    one.write(BLOB[5000:])
    assert one.finish().read_bytes() == BLOB


def test_a_file_that_differs_when_read_back_is_deleted(tmp_path: Path) -> None:
    one = IncomingFile(tmp_path, SHA, len(BLOB))
    one.write(b"x" + BLOB[1:])
    with pytest.raises(ProvisioningError) as caught:
        one.finish()
    assert caught.value.code == "E302"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "0" * 63])
def test_only_a_hash_can_name_a_transfer(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProvisioningError):
        IncomingFile(tmp_path, name, 10)
    assert not IncomingFile.is_whole(tmp_path, name)


def test_old_files_go_and_the_transfer_at_hand_stays(tmp_path: Path) -> None:
    for name, days in (("old", 8), ("new", 1), (SHA + ".part", 9)):
        (tmp_path / name).write_bytes(b"x" * 1000)
        os.utime(tmp_path / name, (1e9 - days * 86400, 1e9 - days * 86400))
    make_room(tmp_path, 1000, now_s=1e9, keep=SHA)
    assert {path.name for path in tmp_path.iterdir()} == {"new", SHA + ".part"}


def test_what_has_arrived_needs_no_room_again(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with (tmp_path / f"{SHA}.part").open("wb") as part:
        part.truncate(2 * free)  # a hole: the disk keeps its room
    make_room(tmp_path, 2 * free + 1, now_s=0, keep=SHA)
    with pytest.raises(ProvisioningError) as caught:
        make_room(tmp_path, 4 * free, now_s=0, keep=SHA)
    assert caught.value.facts["needs"] == 2 * free


def test_more_than_the_disk_has_is_refused_with_both_figures(tmp_path: Path) -> None:
    with pytest.raises(ProvisioningError) as caught:
        make_room(tmp_path, 1 << 60, now_s=0)
    assert caught.value.code == "E301"
    assert caught.value.facts["needs"] == 1 << 60
