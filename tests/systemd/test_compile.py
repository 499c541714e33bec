"""The build of the compiled modules: what it needs, when it has nothing to do."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY_BYTES = 5_600_000  # tests/provisioning/packaging/test_app_tree.py adds it to the rest
UNCOMPILED = {"Protocol", "NamedTuple", "Exception"}  # as bases: what inherits from these is an ordinary class
BUILD = Path(__file__).resolve().parents[2] / "systemd/compiled/build.py"
_spec = importlib.util.spec_from_file_location("compile_build", BUILD)
assert _spec is not None
assert _spec.loader is not None
build = importlib.util.module_from_spec(_spec)
sys.modules["compile_build"] = build
_spec.loader.exec_module(build)


def test_without_a_c_compiler_it_says_so_in_one_line_and_goes_on(tmp_path: Path) -> None:
    words = [sys.executable, str(BUILD), str(tmp_path / "out")]
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout == ("not compiled, Rocketbox runs as pure Python: no C compiler; as root: apt-get install gcc\n")
    assert not (tmp_path / "out").exists()


def test_without_headers_of_python_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(build.shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(build.CannotCompile, match=rf"no Python.h in {tmp_path}; as root: apt-get install python3-dev"):
        build.own_python()


def test_a_library_fits_while_no_source_has_other_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "TOP", tmp_path)
    source, described = tmp_path / "a.py", tmp_path / "library.json"
    source.write_text("A = 1\n")
    modules = ["a"]
    described.with_suffix(".so").touch()
    described.write_text(json.dumps(build.described(modules, ["a.py"], sealed=False)))
    os.utime(source, ns=(1, 1))
    assert build.still_fits(described, modules, sealed=False)
    assert json.loads(described.read_text())["sources"] == [["a.py", 6, 1]], "another time alone compiles nothing"
    assert not build.still_fits(described, ["a", "b"], sealed=False), "another list of modules"
    source.write_text("A = 2\n")
    assert not build.still_fits(described, modules, sealed=False)
    source.unlink()
    assert not build.still_fits(described, modules, sealed=False)
    described.write_text("{")
    assert not build.still_fits(described, modules, sealed=False)


def test_every_module_that_is_to_be_compiled_exists_once() -> None:
    modules = build.compiled_modules()
    assert len(set(modules)) == len(modules) > 30
    assert all((build.TOP / f"{name.replace('.', '/')}.py").is_file() for name in modules)


def bases(path: Path) -> dict[str, set[str]]:
    """Return the classes of a module with the names that they inherit from, each as `module.Class`."""
    module, tree = ".".join(path.relative_to(build.TOP).with_suffix("").parts), ast.parse(path.read_text())
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            known |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    known |= {name: f"{module}.{name}" for name in classes}
    return {
        f"{module}.{name}": {known.get(base.id, base.id) for base in node.bases if isinstance(base, ast.Name)}
        for name, node in classes.items()
    }


def test_no_interpreted_class_inherits_from_a_compiled_one() -> None:
    """A compiled class refuses to make such an object, so the whole family is compiled, or none of it."""
    modules = set(build.compiled_modules())
    found: dict[str, set[str]] = {}
    for package in ("appliance", "storage_driver", "netstack", "watchdog", "provisioning", "uplink_spark"):
        for path in (build.TOP / package).rglob("*.py"):
            found |= bases(path)
    plain = {name for name, above in found.items() if {one.rpartition(".")[2] for one in above} & UNCOMPILED}
    wrong = [
        f"{name}({base})"
        for name, above in found.items()
        for base in above
        if name.rpartition(".")[0] not in modules and base in found and base.rpartition(".")[0] in modules
        if base not in plain
    ]
    assert not wrong, f"add their modules to [tool.rocketbox] compiled, or take the base's out: {wrong}"


def test_the_library_leaves_a_box_within_its_size() -> None:
    libraries = list((build.TOP / "appliance/native").glob("*.so"))
    assert all(library.stat().st_size < LIBRARY_BYTES for library in libraries)
