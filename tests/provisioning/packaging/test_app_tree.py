import json
import subprocess
import sys
from pathlib import Path

import pytest

from provisioning.errors import ProvisioningError
from provisioning.packaging.app_tree import (
    LOCK,
    build_tree,
    copy_libraries,
    distribution_name,
    python_version,
    wanted_here,
)

LIBRARY_BYTES = 5_600_000  # of the compiled modules; tests/systemd/test_compile.py holds it
ALL = """
import sys; sys.path.insert(0, sys.argv[1])
from importlib import import_module
from pathlib import Path
for name in ("appliance", "storage_driver", "netstack", "watchdog", "provisioning", "uplink_spark"):
    for path in sorted(Path(sys.argv[1], name).rglob("*.pyc")):
        if path.name not in ("__main__.pyc", "telemetry.pyc"):
            import_module(".".join(path.relative_to(sys.argv[1]).with_suffix("").parts).removesuffix(".__init__"))
print(*sys.modules)
"""
TOP = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_a_slot_holds_the_box_side_compiled_and_lists_its_licences(tmp_path: Path) -> None:
    libraries = build_tree(tmp_path / "tree", TOP, sys.executable, "9.8.7")
    assert {"trio", "cbor2", "psutil", "pyserial", "orjson", "isal"} <= set(libraries)
    assert not {"pyspark", "numpy", "pytest", "zstandard"} & set(libraries)
    site = tmp_path / f"tree/lib/python{python_version(sys.executable)}/site-packages"
    assert not (site / "uplink_spark/jobs").exists()
    assert not list(site.rglob("testing.py"))
    assert not list(site.rglob("*.py"))
    assert not list(site.rglob("__pycache__"))
    assert (site / "trio/_core/_run.pyc").exists()
    assert (site / "watchdog/helper.pyc").exists()
    bom = json.loads((tmp_path / "tree/lib/sbom.cdx.json").read_text())
    assert (bom["bomFormat"], bom["metadata"]["component"]["version"]) == ("CycloneDX", "9.8.7")
    assert {part["name"] for part in bom["components"]} == set(libraries)
    said = {part["name"]: json.dumps(part["licenses"][0]) for part in bom["components"]}
    assert "unknown" not in "".join(said.values())
    assert '"MIT"' in said["cbor2"]
    needs = {row["ref"].partition("==")[0]: row.get("dependsOn", []) for row in bom["dependencies"]}
    assert any(ref.startswith("outcome==") for ref in needs["trio"])
    done = subprocess.run([sys.executable, "-IS", "-c", ALL, site], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "appliance.grpc.service" in done.stdout.split()
    size = sum(path.stat().st_size for path in (tmp_path / "tree").rglob("*") if path.is_file())
    assert size + LIBRARY_BYTES < 18e6, "what a box holds with compiled modules"


def test_requirements_are_read_as_far_as_a_box_needs() -> None:
    assert distribution_name("Typing_Extensions>=4; python_version < '3.13'") == "typing-extensions"
    assert wanted_here("attrs>=23.2.0")
    assert wanted_here("cffi; os_name == 'posix' and implementation_name != 'pypy'")
    assert not wanted_here("cffi>=1.14; os_name == 'nt' and implementation_name != 'pypy'")
    assert not wanted_here("exceptiongroup; python_version < '3.11'")


def test_a_library_of_another_version_than_is_locked_does_not_go_onto_a_box(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "pyproject.toml").write_text('[project]\ndependencies = ["trio>=0.30"]\n')
    (top / LOCK).write_text("trio==0.0.1 \\\n    --hash=sha256:00\n")
    with pytest.raises(ProvisioningError, match=r"trio .* is installed, .lock-box.txt says 0.0.1"):
        copy_libraries(top, tmp_path / "site")
