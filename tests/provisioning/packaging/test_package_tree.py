"""What the Debian package holds, from wheels as pip unpacks them; tests/systemd/test_deb.py builds and installs it."""

from pathlib import Path

import pytest

from provisioning.errors import ProvisioningError
from provisioning.packaging.package_tree import APACHE, is_installed, merge, write_copyright


def unpacked(folder: Path, python: str, **more: str) -> Path:
    """Return a folder as pip leaves it: a library with a compiled module, its notes, and what no box needs."""
    files = {
        "lib/__init__.py": "import lib._fast\n",
        f"lib/_fast.cpython-{python}-aarch64-linux-gnu.so": python,
        "lib/tests/test_it.py": "",
        "lib/_fast.c": "",
        "bin/lib-tool": "",
        "lib-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: Lib\nVersion: 1.0\nLicense: MIT\n",
        "lib-1.0.dist-info/WHEEL": f"Tag: cp{python}\n",
        "lib-1.0.dist-info/licenses/LICENSE.txt": "Do what you like.\n",
    }
    for name, text in (files | more).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_modules_of_two_pythons_lie_side_by_side_and_all_else_once(tmp_path: Path) -> None:
    for python in ("311", "313"):
        merge(unpacked(tmp_path / python, python), tmp_path / "site")
    names = {
        path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*") if path.is_file()
    }
    assert names == {
        "lib/__init__.py",
        "lib/_fast.cpython-311-aarch64-linux-gnu.so",
        "lib/_fast.cpython-313-aarch64-linux-gnu.so",
        "lib-1.0.dist-info/METADATA",
        "lib-1.0.dist-info/licenses/LICENSE.txt",
    }
    assert is_installed(tmp_path / "site", "lib")


def test_a_file_that_differs_between_the_pythons_stops_the_build(tmp_path: Path) -> None:
    merge(unpacked(tmp_path / "311", "311"), tmp_path / "site")
    other = unpacked(tmp_path / "313", "313", **{"lib/__init__.py": "import lib._other\n"})
    with pytest.raises(ProvisioningError, match=r"lib/__init__\.py differs between the Pythons 3\.11 and 3\.13"):
        merge(other, tmp_path / "site")


def test_the_copyright_file_has_every_licence_once_and_the_libraries_have_none(tmp_path: Path) -> None:
    apache = "lib-1.0.dist-info/licenses/LICENSE.APACHE2"
    terms = "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION\n"
    merge(unpacked(tmp_path / "311", "311", **{apache: terms}), tmp_path / "site")
    write_copyright(tmp_path / "doc/copyright", tmp_path / "site")
    text = (tmp_path / "doc/copyright").read_text()
    assert "Lib 1.0\n\nLicence: MIT\n" in text
    assert "LICENSE.txt:\n\nDo what you like.\n" in text
    assert f"LICENSE.APACHE2: {APACHE}\n" in text
    assert terms not in text
    assert not (tmp_path / "site/lib-1.0.dist-info/licenses").exists()
