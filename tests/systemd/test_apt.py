"""The signed apt repository: a machine that trusts its key installs from it, and refuses what was changed."""

import lzma
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.debian import Debian, needs_debian
from tests.systemd.machine import TOP

needs_tools = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("dpkg-scanpackages", "gpg", "xz")),
    reason="missing: apt-get install dpkg-dev gpg xz-utils",
)
pytestmark = [pytest.mark.soak, needs_debian, needs_tools]
URL = "http://127.0.0.1:8000"
KEYRING = "/etc/apt/keyrings/rocketbox.asc"
INDEX = "dists/stable/main/binary-amd64/Packages"


def make_repository(out: Path, packages: Path, key: Path) -> str:
    done = subprocess.run(
        [TOP / "systemd/make-apt.sh", out, packages, key, "--new-key"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(params=("bookworm", "trixie"))
def debian(request: pytest.FixtureRequest, package: Path, tmp_path: Path) -> Iterator[Debian]:
    """Return a machine that reads the repository by HTTP, as the lines of docs/installing.md set it up."""
    machine = Debian(tmp_path, request.param)
    repository = machine.shared / "apt"
    assert "new signing key in" in make_repository(repository, package.parent, tmp_path / "key")
    try:
        machine.start()
        machine.done("systemd-run", "--unit=web", "python3", "-m", "http.server", "8000", "-d", "/shared/apt")
        fetch = ("/usr/lib/apt/apt-helper", "download-file", f"{URL}/rocketbox.asc", KEYRING)
        machine.wait_until(lambda: machine.run(*fetch).returncode == 0, "the key by HTTP")
        (machine.root / "etc/apt/sources.list").unlink()  # no Debian in the machine's own network
        line = f"deb [signed-by={KEYRING}] {URL} stable main\n"
        (machine.root / "etc/apt/sources.list.d/rocketbox.list").write_text(line)
        yield machine
    finally:
        machine.stop()
        shutil.rmtree(tmp_path / "root")


def refused(machine: Debian, *words: str) -> str:
    """Run apt-get, which must fail; return what it says."""
    found = machine.run("env", "LC_ALL=C", "apt-get", "-y", *words)
    assert found.returncode != 0, found.stdout
    return found.stdout + found.stderr


def test_apt_installs_from_the_signed_folder_and_refuses_whatever_was_changed_in_it(
    debian: Debian, package: Path, tmp_path: Path
) -> None:
    repository = debian.shared / "apt"
    index, signed = repository / INDEX, repository / "dists/stable/InRelease"
    good = {path: path.read_bytes() for path in (index, index.with_suffix(".xz"), signed)}
    changed = good[index].replace(b"Depends: ", b"Depends: evil, ")
    index.write_bytes(changed)
    index.with_suffix(".xz").write_bytes(lzma.compress(changed))
    said = refused(debian, "update")
    assert "unexpected size" in said or "Hash Sum mismatch" in said
    for path in good:
        path.write_bytes(good[path])
    signed.write_bytes(good[signed].replace(b"Label: Rocketbox", b"Label: Rocketfox"))
    assert "is not signed" in refused(debian, "update")
    assert make_repository(tmp_path / "other", package.parent, tmp_path / "other-key")
    signed.write_bytes((tmp_path / "other/dists/stable/InRelease").read_bytes())
    assert "is not signed" in refused(debian, "update")
    assert "Unable to locate package" in refused(debian, "install", "rocketbox")
    signed.write_bytes(good[signed])
    debian.apt("update")
    (there,) = repository.glob("pool/main/*_amd64.deb")
    whole = there.read_bytes()
    there.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "Hash Sum mismatch" in refused(debian, "install", "rocketbox")
    there.write_bytes(whole)
    debian.apt("install", "rocketbox")
    debian.wait_for("rocketbox.service")
    debian.done("rocketbox", "send", "T", "hello")


def test_a_second_run_keeps_key_and_packages_and_adds_the_new_one(package: Path, tmp_path: Path) -> None:
    out, key = tmp_path / "apt", tmp_path / "key"
    make_repository(out, package.parent, key)
    before = (out / "rocketbox.asc").read_bytes()
    (tmp_path / "more").mkdir()
    shutil.copy(package, tmp_path / "more/rocketbox_0.0.1_amd64.deb")
    assert "new signing key in" not in make_repository(out, tmp_path / "more", key)
    assert (out / "rocketbox.asc").read_bytes() == before
    assert (out / INDEX).read_text().count("Package: rocketbox\n") == 2
