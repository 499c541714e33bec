"""The release folder: every file listed, the list signed, the parts named in a form that its schema accepts."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provisioning.bundle import make_key, signature_fits
from provisioning.packaging.app_tree import locked_versions, project_version

TOP = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")]


def release(out: Path, key: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    words = [str(TOP / "systemd/make-release.sh"), str(out), sys.executable, str(key), *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("key") / "release.pem"
    make_key(made, made.with_name("public.pem"))
    return made


@pytest.fixture(scope="module")
def made(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    wheel = folder / f"rocketbox-{project_version(TOP)}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    done = release(folder / "out", key, wheel)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_every_file_is_listed_and_the_list_is_signed(made: Path, key: Path) -> None:
    listed = {line.split("  ")[1] for line in (made / "SHA256SUMS").read_text().splitlines()}
    extra = {"SHA256SUMS", "SHA256SUMS.sig", "rocketbox-release.pem"}
    assert {path.name for path in made.iterdir()} == listed | extra
    signature, public = (made / "SHA256SUMS.sig").read_bytes(), key.with_name("public.pem")
    assert signature_fits((made / "SHA256SUMS").read_bytes(), signature, public)
    assert not signature_fits((made / "SHA256SUMS").read_bytes() + b"x", signature, public)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=made, check=True, capture_output=True)


@pytest.mark.parametrize(("part", "lock"), [("rocketbox", ".lock-box.txt"), ("rocketbox-gateway", ".lock-gateway.txt")])
def test_the_list_of_parts_fits_its_schema_and_names_every_locked_version(made: Path, part: str, lock: str) -> None:
    from cyclonedx.schema import SchemaVersion  # seconds to import, in each worker
    from cyclonedx.validation.json import JsonStrictValidator

    text = (made / f"{part}-{project_version(TOP)}.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    rows = [line.split()[0] for line in (TOP / lock).read_text().splitlines() if "==" in line and line[0] != " "]
    versions = {row.replace("==", "@") for row in rows if not row.startswith("setuptools")}
    assert all(f"pkg:pypi/{row}" in text for row in versions)
    assert len(locked_versions(TOP)) <= len(versions)
    licences = [row for each in json.loads(text)["components"] for row in each["licenses"]]
    assert [row for row in licences if "name" in row.get("license", {})] == []  # each an id or expression of SPDX


def test_a_file_of_another_version_is_refused(key: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "rocketbox-0.0.9-py3-none-any.whl"
    wheel.write_bytes(b"old")
    done = release(tmp_path / "out", key, wheel)
    assert done.returncode == 2
    assert "rocketbox-0.0.9-py3-none-any.whl is not of version" in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")
def test_a_key_that_is_named_and_not_there_is_an_error_and_no_new_key(tmp_path: Path) -> None:
    words = ["make", "--dry-run", "release", f"RELEASE_KEY={tmp_path}/mistyped.pem", "IMAGE="]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{tmp_path}/mistyped.pem" in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")
def test_a_folder_with_the_key_of_apt_that_is_named_and_not_there_is_an_error_and_no_new_key(tmp_path: Path) -> None:
    words = ["make", "--dry-run", "apt", f"APT_KEY={tmp_path}/mistyped"]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{tmp_path}/mistyped" in done.stderr


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is missing")
def test_a_folder_without_a_key_gets_none_unless_that_is_asked_for(tmp_path: Path) -> None:
    empty = tmp_path / "key"
    empty.mkdir()
    words = [TOP / "systemd/make-apt.sh", tmp_path / "apt", tmp_path, empty]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{empty} holds no secret key" in done.stderr


TOOLS = ("mmdebstrap", "mkfs.erofs", "mcopy", "arch-test", "update-binfmts", "qemu-aarch64-static", "unshare")
UNTOLD = "mount -t tmpfs none /proc/sys/fs/binfmt_misc && exec"


@pytest.mark.skipif(
    os.geteuid() != 0 or platform.machine() != "x86_64" or any(shutil.which(tool) is None for tool in TOOLS),
    reason="needs root, an x86-64 machine and the packages of an image for arm64",
)
def test_an_image_for_a_processor_that_the_kernel_cannot_emulate_says_how_it_is_told(tmp_path: Path) -> None:
    make = f"{TOP}/systemd/make-image.sh {tmp_path}/work {sys.executable} --arch arm64"
    words = ["unshare", "--mount", "sh", "-c", f"{UNTOLD} {make}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "update-binfmts --enable qemu-aarch64" in done.stderr
    assert not (tmp_path / "work").exists()
