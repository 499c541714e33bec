"""The engine of a box is made when it is needed, or when an earlier run left a journal."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.broker.pop.lazy_pop import LazyPop
from storage_driver.files.disk import RealDisk
from storage_driver.files.journal_file import JournalFile
from tests.appliance.box import running_box


async def test_a_journal_of_an_earlier_run_makes_the_engine_at_the_start(tmp_path: Path) -> None:
    made: list[JournalFile] = []

    def make(file: JournalFile) -> object:
        made.append(file)
        return object()

    file = JournalFile(RealDisk(), tmp_path / "pop.journal")
    lazy = LazyPop(file, make)  # type: ignore[arg-type]
    assert (lazy.made, made) == (None, [])
    assert lazy.engine() is lazy.engine()
    file.replace([b""])
    LazyPop(file, make)  # type: ignore[arg-type]
    assert len(made) == 2


async def test_a_box_without_pop_has_no_journal(tmp_path: Path) -> None:
    async with running_box(tmp_path):
        pass
    assert not JournalFile(RealDisk(), tmp_path / "store" / "rocketbox" / "pop.journal").exists


@pytest.mark.slow
def test_a_start_imports_nothing_of_the_engine() -> None:
    code = "import sys, appliance.serve; print(*(m for m in sys.modules if 'broker.pop' in m))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    room = "appliance.broker.pop"
    assert set(found.split()) == {room, f"{room}.counts", f"{room}.lazy_pop", f"{room}.retry_topics"}
