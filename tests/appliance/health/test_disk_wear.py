"""Wear of a disk: what an eMMC and smartctl say, and that silence is not taken for health."""

import json
import os
from pathlib import Path

import pytest

from appliance.health.disk_wear import _from_smart, wear, whole_disk


def disk(tmp_path: Path, life: str | None, *, partition: bool = True) -> Path:
    """A made-up /sys in which the folder of the test lies on an eMMC."""
    node = tmp_path / "sys/devices/mmc0/block/mmcblk0"
    (node / "queue").mkdir(parents=True)
    if life is not None:
        (node / "device").mkdir()
        (node / "device/life_time").write_text(life)
    place = node / "mmcblk0p2" if partition else node
    place.mkdir(exist_ok=True)
    number = os.stat(tmp_path).st_dev
    link = tmp_path / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(place)
    return tmp_path / "sys"


@pytest.mark.parametrize("partition", [True, False])
def test_the_disk_is_found_from_one_of_its_partitions(tmp_path: Path, partition: bool) -> None:
    assert whole_disk(tmp_path, disk(tmp_path, None, partition=partition)).name == "mmcblk0"


@pytest.mark.parametrize(
    ("life", "used"),
    [("0x01 0x01\n", 10), ("0x01 0x05\n", 50), ("0x0a 0x00\n", 100), ("0x0b 0x01\n", 100), ("0x00 0x03", 30)],
)
def test_an_emmc_counts_in_tenths_and_the_more_worn_part_counts(tmp_path: Path, life: str, used: int) -> None:
    assert wear(tmp_path, disk(tmp_path, life)) == {"used_percent": used, "media_errors": 0, "hours": None}


def test_an_emmc_that_does_not_say_is_not_called_new(tmp_path: Path) -> None:
    assert wear(tmp_path, disk(tmp_path, "0x00 0x00\n")) is None


def test_without_a_program_to_ask_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert wear(tmp_path, disk(tmp_path, None)) is None


def test_a_folder_on_no_disk_is_an_error_the_caller_names(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        wear(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (
            {
                "nvme_smart_health_information_log": {"percentage_used": 7, "media_errors": 2},
                "power_on_time": {"hours": 9},
            },
            (7, 2, 9),
        ),
        ({"endurance_used": {"current_percent": 31}}, (31, 0, None)),
        ({}, (None, 0, None)),
    ],
)
def test_what_smartctl_says(said: dict[str, object], wanted: tuple[int | None, int, int | None]) -> None:
    found = _from_smart(json.loads(json.dumps(said)))
    assert (found["used_percent"], found["media_errors"], found["hours"]) == wanted
