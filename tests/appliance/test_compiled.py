"""A library of compiled modules is used as a whole where it fits the sources, and never else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from appliance import compiled

TOP = Path(__file__).resolve().parents[2]
TELL = """
import appliance.compiled as compiled
import storage_driver.log.segment as segment, storage_driver.record as record
kinds = (type(function).__name__ for function in (record.decode_record, segment.segment_name))
print("|".join([compiled.why_pure(), *kinds, record.__file__]))
"""
COMPILED, PURE = "builtin_function_or_method", "function"
needs_library = pytest.mark.skipif(not compiled.LIBRARY.exists(), reason="nothing is compiled here: no C compiler")


def tell(tree: Path, **environment: str) -> list[str]:
    """Return why the tree runs as pure Python, what functions of a hot module and of another one are, and its file."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    words = [sys.executable, "-c", TELL]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True, cwd=tree)
    return done.stdout.strip().split("|")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the product with its library, its sources as old as the library says."""
    for name in ("appliance", "storage_driver", "netstack", "uplink_spark"):
        shutil.copytree(TOP / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    described = tmp_path / "appliance/native" / compiled.LIBRARY.with_suffix(".json").name
    told = json.loads(described.read_bytes())
    stats = [(name, (tmp_path / name).stat()) for name, *_ in told["sources"]]
    described.write_text(json.dumps({**told, "sources": [(name, s.st_size, s.st_mtime_ns) for name, s in stats]}))
    return tmp_path


@needs_library
def test_the_modules_that_messages_pass_come_from_the_library_and_the_others_do_not(tree: Path) -> None:
    why, kind, other, path = tell(tree)
    assert (why, kind, other) == ("", COMPILED, PURE)
    assert path == str(tree / "storage_driver/record.py"), "tracebacks and messages name the source"


@needs_library
def test_one_changed_source_switches_the_whole_library_off(tree: Path) -> None:
    with open(tree / "netstack/wire/frame.py", "a") as source:
        source.write("\n")
    why, kind, _, _ = tell(tree)
    assert why == "netstack/wire/frame.py changed since it was compiled; make setup compiles again"
    assert kind == PURE


@needs_library
def test_a_library_that_cannot_be_loaded_is_told_and_costs_nothing_else(tree: Path) -> None:
    library = tree / "appliance/native" / compiled.LIBRARY.name
    library.write_bytes(b"\x7fELF of another machine")
    why, kind, _, _ = tell(tree)
    assert why.startswith(f"{library.name} cannot be loaded: ")
    assert kind == PURE


@needs_library
def test_a_setting_of_the_environment_switches_it_off(tree: Path) -> None:
    assert tell(tree, ROCKETBOX_PURE="1")[:2] == ["ROCKETBOX_PURE is set", PURE]
    assert tell(tree, ROCKETBOX_PURE="0")[:2] == ["", COMPILED]


@needs_library
def test_a_command_that_handles_no_messages_leaves_it_out(tree: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    leaving = "import appliance.compiled as compiled; compiled.leave_out()"
    words = [sys.executable, "-c", f"{leaving}{TELL}"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True, cwd=tree)
    assert done.stdout.strip().split("|")[1] == PURE


@needs_library
def test_a_package_has_no_list_of_sources_and_needs_none(tree: Path) -> None:
    described = tree / "appliance/native" / compiled.LIBRARY.with_suffix(".json").name
    described.write_text(json.dumps({**json.loads(described.read_bytes()), "sources": []}))
    os.utime(tree / "netstack/wire/frame.py")
    assert tell(tree)[:2] == ["", COMPILED]


def test_without_a_library_everything_is_pure_python(tmp_path: Path) -> None:
    for name in ("appliance", "storage_driver", "netstack", "uplink_spark"):
        shutil.copytree(TOP / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "native"))
    why, kind, _, _ = tell(tmp_path)
    assert (why, kind) == (f"no library for this Python ({compiled.LIBRARY.name})", PURE)
