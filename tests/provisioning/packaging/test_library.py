"""Packages take the library of their Python and machine, and never one of older sources."""

import json
from pathlib import Path

import pytest

from provisioning.errors import ProvisioningError
from provisioning.packaging.library import LIBRARIES, copy_library, digest_of

NAME = "rocketbox.cpython-313-aarch64-linux-gnu"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A checkout of one source, with the library that was compiled of it."""
    (tmp_path / "appliance").mkdir()
    (tmp_path / "appliance/a.py").write_text("A = 1\n")
    (tmp_path / "site/appliance").mkdir(parents=True)
    made = tmp_path / LIBRARIES
    made.mkdir(parents=True)
    told = {"read": ["appliance/a.py"], "digest": digest_of(tmp_path, ["appliance/a.py"])}
    (made / f"{NAME}.json").write_text(json.dumps(told))
    (made / f"{NAME}.so").write_bytes(b"code")
    return tmp_path


def native(top: Path) -> list[str]:
    return sorted(path.name for path in (top / "site/appliance").glob("native/*"))


def test_a_tree_gets_the_library_of_its_python_and_machine_alone(top: Path) -> None:
    assert copy_library(top, top / LIBRARIES, top / "site", "aarch64", "3.13")
    assert native(top) == [f"{NAME}.json", f"{NAME}.so"]
    assert (top / f"site/appliance/native/{NAME}.so").read_bytes() == b"code"


@pytest.mark.parametrize(("machine", "python"), [("x86_64", "3.13"), ("aarch64", "3.11")])
def test_without_a_library_the_tree_is_pure_python(top: Path, machine: str, python: str) -> None:
    assert not copy_library(top, top / LIBRARIES, top / "site", machine, python)
    assert native(top) == []


def test_a_library_of_older_sources_is_refused(top: Path) -> None:
    (top / "appliance/a.py").write_text("A = 2\n")
    with pytest.raises(ProvisioningError, match=f"the sources changed since {NAME}.so was compiled: `make libraries`"):
        copy_library(top, top / LIBRARIES, top / "site", "aarch64", "3.13")
    (top / "appliance/a.py").unlink()
    with pytest.raises(ProvisioningError, match="E303"):
        copy_library(top, top / LIBRARIES, top / "site", "aarch64", "3.13")
    assert native(top) == []
