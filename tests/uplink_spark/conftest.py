"""A landing zone of the test's own. The SparkSession is the one of tests/conftest.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from uplink_spark.testing import MadeLanding


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[MadeLanding]:
    made = MadeLanding(tmp_path / "landing")
    yield made
    made.close()
