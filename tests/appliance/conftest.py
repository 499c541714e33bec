"""What several tests of the appliance start with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.appliance.technician import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A technician with an unclaimed box at the other end of the cable."""
    made = Bench(tmp_path)
    yield made
    made.close()
