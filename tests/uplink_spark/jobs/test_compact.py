"""compact: which days, and what it says of each."""

from typing import Any

import pytest

from uplink_spark.jobs import care, compact
from uplink_spark.jobs.bronze import Bronze, BronzeConfig
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.testing import Fleet, in_table, landed_items

DAY_MS = 86_400_000


@pytest.mark.parametrize("options", [[], ["--day", "2026-11-03", "--all"]])
def test_compact_wants_a_day_or_all_of_them(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        compact.main(["--table", "/t", *options])
    assert ended.value.code == 2
    assert "--day" in capsys.readouterr().err


@pytest.mark.slow
def test_all_is_every_day_but_today(
    spark: Any, fleet: Fleet, config: BronzeConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze = Bronze(config)
    for later_ms in (1000, 1000, 3 * DAY_MS, 1000):  # two files of data a day
        fleet.land("box-1", 5, later_ms=later_ms)
        bronze.write(landed_items(fleet.landing.root))
    first, last = care.days(Table(config.table).snapshot())
    monkeypatch.setattr(compact, "day_of", lambda now_ms: last)
    assert compact.main(["--table", config.table, "--all", "--master", "local[2]"]) == 0
    assert capsys.readouterr().out == f"compact day={first} files=4->2 rows=10\n"
    assert in_table(config.table) == fleet.expected
