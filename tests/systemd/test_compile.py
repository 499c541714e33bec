"""The build of the compiled modules: what it needs, when it has nothing to do."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
