"""Groups in one process of which one box is preferred as leader."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from storage_driver.consensus import leaving
from tests.appliance.group.members import RunningMember, group
from tests.appliance.group.test_elections import AUTOMATIC, led


def prefer_after(monkeypatch: pytest.MonkeyPatch, level_s: float) -> None:
    """Let the preferred box lead once it has been level for so long."""
    monkeypatch.setattr(leaving, "PREFERRED_PAUSE_S", 0.0)
    monkeypatch.setattr(leaving, "PREFERRED_LEVEL_S", level_s)


@asynccontextmanager
async def led_until_it_comes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, preferred: str
) -> AsyncIterator[tuple[RunningMember, RunningMember]]:
    """Yield who leads three boxes and the preferred one, which came last; it leads when `prefer_after` lets it."""
    prefer_after(monkeypatch, 1e9)
    async with group(folder, "a", "b", "c", rules=AUTOMATIC._replace(preferred=preferred)) as made:
        await made.start(*({"a", "b", "c"} - {preferred}))
        _, leader = await led(made)
        [came] = await made.start(preferred)
        yield leader, came
