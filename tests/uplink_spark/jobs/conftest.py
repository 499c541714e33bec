"""A small fleet that lands records, and a bronze table for it."""

from pathlib import Path

import pytest

from uplink_spark.jobs.bronze import BronzeConfig
from uplink_spark.jobs.testing import Fleet
from uplink_spark.testing import MadeLanding


@pytest.fixture
def fleet(landing: MadeLanding) -> Fleet:
    return Fleet(landing)


@pytest.fixture
def config(landing: MadeLanding, tmp_path: Path) -> BronzeConfig:
    return BronzeConfig(str(landing.root), str(tmp_path / "bronze"), str(tmp_path / "checkpoint"))
