"""What a box, a gateway and the Spark image install is locked to digests, at the versions that the tests run with."""

import re
import tomllib
from pathlib import Path

import pytest

from provisioning.packaging.app_tree import LOCK, distribution_name, locked_versions

TOP = Path(__file__).parents[1]
BOX, GATEWAY, SPARK = TOP / LOCK, TOP / ".lock-gateway.txt", TOP / ".lock-spark.txt"
BLOCK = r"[a-z0-9._-]+==\S+( ; platform_machine [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]


def blocks(lock: Path) -> list[str]:
    return re.split(r"^(?=\S)", lock.read_text(), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("lock", [BOX, GATEWAY, SPARK])
def test_every_line_of_a_lock_is_a_version_with_its_digests_and_names_no_place(lock: Path) -> None:
    for block in blocks(lock):
        assert re.fullmatch(BLOCK, block), block


def test_all_that_a_box_needs_is_locked() -> None:
    locked = locked_versions(TOP)
    extras = PROJECT["optional-dependencies"]
    assert {distribution_name(line) for line in (*PROJECT["dependencies"], *extras["fast"])} <= locked.keys()
    for extra, lock in (("gateway", GATEWAY), ("spark", SPARK)):
        both = {block.partition("==")[0] for block in blocks(lock)}
        assert locked.keys() | {distribution_name(line) for line in extras[extra]} <= both


@pytest.mark.parametrize("lock", [BOX, GATEWAY, SPARK])
def test_versions_are_those_of_the_constraints(lock: Path) -> None:
    lines = (TOP / ".constraints.txt").read_text().split()
    wanted = {distribution_name(line): line.partition("==")[2] for line in lines}
    for block in blocks(lock):
        name, _, rest = block.partition("==")
        assert wanted[name] == rest.split()[0], f"{name}: make lock"
