"""The checker of histories, built once for all that ask it."""

from pathlib import Path

import pytest

from tests.histories.history import checker
from tests.interop.jars import Unavailable


@pytest.fixture(scope="session")
def program() -> Path:
    try:
        return checker()
    except Unavailable as error:
        pytest.skip(str(error))
