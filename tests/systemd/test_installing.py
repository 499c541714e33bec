"""The commands of docs/installing.md for a box, as they are written: on Debian with systemd, from the file to purge."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioning.packaging.app_tree import project_version
from tests.systemd.debian import NEWER, Debian, needs_debian
from tests.systemd.machine import TOP
from tests.systemd.pages import read_blocks, script

PAGE = TOP / "docs/installing.md"
VERSION = project_version(TOP)


def test_every_block_of_the_page_says_that_it_runs_on_a_box() -> None:
    assert {block.place for block in read_blocks(PAGE)} == {"box"}


@pytest.fixture(scope="module")
def repository(package: Path, newer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package of this version, and below `apt` a signed repository with it and a newer one."""
    folder = tmp_path_factory.mktemp("packages")
    shutil.copy(package, folder)
    for packages in (package.parent, newer.parent):
        words = [TOP / "systemd/make-apt.sh", folder / "apt", packages, folder / "key"]
        subprocess.run([*words, "--new-key"], check=True, capture_output=True)
    return folder


@pytest.fixture(params=("bookworm", "trixie"))
def debian(request: pytest.FixtureRequest, repository: Path, tmp_path: Path) -> Iterator[Debian]:
    """Return a Debian with the package in root's home and a server of the repository; no other source of packages."""
    machine = Debian(tmp_path, request.param, more=("sudo", "curl"))
    shutil.copytree(repository / "apt", machine.shared / "apt")
    shutil.copy(next(repository.glob("*.deb")), machine.root / "root")
    (machine.root / "etc/apt/sources.list").unlink()
    (machine.root / "etc/apt/apt.conf.d/yes").write_text('APT::Get::Assume-Yes "true";\n')
    try:
        machine.start()
        machine.done("systemd-run", "--unit=web", "python3", "-m", "http.server", "8000", "-d", "/shared/apt")
        machine.wait_until(lambda: machine.run("curl", "-fs", "http://127.0.0.1:8000").returncode == 0, "the server")
        yield machine
    finally:
        machine.stop()
        shutil.rmtree(tmp_path / "root")


@pytest.mark.soak
@needs_debian
@pytest.mark.xdist_group("packages")
def test_the_page_leads_from_the_file_to_a_newer_version_back_and_away(debian: Debian) -> None:
    reached = []
    for number, block in enumerate(read_blocks(PAGE)):
        said = debian.done("bash", "-c", f"cd\n{script([block]).replace('SERVER', '127.0.0.1')}")
        print(said)
        state = debian.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", "rocketbox").stdout
        reached.append(state)
        if state.startswith("installed"):
            version = debian.done("rocketbox", "status").partition("Version")[2].split()[0].rstrip(",")
            assert version == state.split()[1]
            words = ("--group", f"reader-{number}", "--from", "first", "--max", "1", "--timeout", "30", "T")
            assert "hello" in debian.done("rocketbox", "consume", *words)
    old, new = f"installed {VERSION}", f"installed {NEWER}"
    assert reached == [old, old, new, old, f"config-files {VERSION}", ""]
    assert "rocketbox: /var/lib/rocketbox stays" in said
