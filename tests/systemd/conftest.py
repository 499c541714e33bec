"""The Debian packages that several files of tests install: each is built once a run."""

from pathlib import Path

import pytest

from tests.systemd.debian import NEWER, build_packages


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return this version's package for amd64, alone in its folder."""
    return build_packages(tmp_path_factory.mktemp("deb"), "amd64")["amd64"]


@pytest.fixture(scope="session")
def packages(package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return this version's packages by architecture."""
    return {"amd64": package} | build_packages(tmp_path_factory.mktemp("deb"), "arm64")


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package of version NEWER for amd64, alone in its folder."""
    return build_packages(tmp_path_factory.mktemp("newer"), "--version", NEWER, "amd64")["amd64"]
