"""Libraries for another processor, by pip from a folder of wheels; no index is asked."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from provisioning.errors import ProvisioningError
from provisioning.packaging.app_tree import fetch_libraries
from provisioning.packaging.wheels import fetch

pytestmark = pytest.mark.slow
FILES = {
    "lib/__init__.py": "import lib._fast\n",
    "lib/_fast.cpython-311-aarch64-linux-gnu.so": "code of another processor",
    "lib/tests/test_it.py": "",
    "lib-1.0.data/scripts/lib-tool": "#!python\n",
    "lib-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: Lib\nVersion: 1.0\n",
    "lib-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-manylinux2014_aarch64\n",
}


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a lock file that names the one wheel there is by its digest."""
    wheel = tmp_path / "lib-1.0-cp311-cp311-manylinux2014_aarch64.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for name, text in FILES.items():
            out.writestr(name, text)
        out.writestr("lib-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in FILES))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    lock = tmp_path / ".lock-box.txt"
    lock.write_text(f"lib==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return lock


def test_a_box_of_another_processor_gets_its_wheels_without_tests_and_scripts(lock: Path, tmp_path: Path) -> None:
    found = fetch_libraries(tmp_path, tmp_path / "site", "aarch64", "3.11")
    assert {name: one.version for name, one in found.items()} == {"lib": "1.0"}
    files = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.*")}
    assert {"lib/__init__.py", "lib/_fast.cpython-311-aarch64-linux-gnu.so"} < files
    assert not {"lib/tests/test_it.py", "bin/lib-tool"} & files


def test_a_wheel_with_other_bytes_than_are_locked_is_refused(lock: Path, tmp_path: Path) -> None:
    lock.write_text("lib==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(ProvisioningError, match=r"E303 no libraries for Python 3\.11 on aarch64: "):
        fetch(tmp_path / "out", lock, "aarch64", "3.11")


@pytest.mark.parametrize(("machine", "python"), [("riscv64", "3.11"), ("aarch64", "3.14")])
def test_a_processor_or_a_python_without_wheels_is_an_error_that_names_it(
    lock: Path, tmp_path: Path, machine: str, python: str
) -> None:
    with pytest.raises(ProvisioningError, match=f"E303 no libraries for Python {python} on {machine}: "):
        fetch(tmp_path / "out", lock, machine, python)
