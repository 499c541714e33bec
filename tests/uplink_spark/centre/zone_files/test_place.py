import errno
from pathlib import Path

import pytest

from uplink_spark.centre.zone_files.place import FilePlace


def test_a_path_that_leads_to_another_file_is_told_until_it_leads_back(tmp_path: Path) -> None:
    zone = tmp_path / "zone"
    zone.mkdir()
    place = FilePlace(zone)
    (zone / "pack").write_text("grows")
    place.check()
    moved = zone.rename(tmp_path / "moved")
    with pytest.raises(OSError, match="zone is no longer what it was at the start") as told:
        place.check()
    assert told.value.errno == errno.ESTALE
    zone.mkdir()
    with pytest.raises(OSError, match="another file system is mounted over the landing zone, or the zone was moved"):
        place.check()
    zone.rmdir()
    moved.rename(zone)
    place.check()
