"""What a bucket is asked for does not grow with the commits of a zone or a table (`tests/bench/bench_requests.py`)."""

from pathlib import Path

import pytest

from tests.bench import bench_requests
from tests.bench.bench_requests import KINDS, Size, counts
from uplink_spark.centre.zone_files import objects
from uplink_spark.zone.manifest import DAY_MS

SOME = 12  # requests that the phase of a page or of a rewritten file makes
OPENED = ("bronze, start and a trigger (--once)", "one box's last day out of bronze")  # reads up to 100 commits, thrice


@pytest.mark.soak
def test_no_step_asks_for_more_where_a_zone_and_its_table_have_more_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("moto.server", reason="moto's server is missing: make setup")
    monkeypatch.setattr(bench_requests, "STEP_MS", DAY_MS // 20)
    monkeypatch.setattr(objects, "STATE_COMMITS", 32)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.setenv(name, "")  # put back afterwards
    sizes = Size(8, 40, 4), Size(8, 40 + 5 * 32, 4 + 16)
    small, large = counts(sizes, tmp_path)
    for step, asked in large.items():
        most = sum(small[step][kind] for kind in KINDS) + SOME
        most += 3 * (sizes[1].triggers - sizes[0].triggers) if step in OPENED else 0
        assert sum(asked[kind] for kind in KINDS) <= most, f"{step}: {dict(small[step])} became {dict(asked)}"
