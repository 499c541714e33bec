"""The six plain package names stay ours, and names in the code follow the house."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.parsed import parsed

ROOT = Path(__file__).parent.parent
PACKAGES = ("appliance", "storage_driver", "netstack", "watchdog", "provisioning", "uplink_spark")
OURS = "rocketbox"
NOT_USED = {"Manager", "Service", "Processor", "Helper", "Util", "Utils", "Impl", "Base", "Abstract"}
# Two classes of one name on purpose, and why.
ALIKE = {
    "ConfigError": "the appliance's and the gateway's, which does not import the appliance",
    "Message": "the client's, with keys and tags of its own, and the store's, with properties in stored form",
    "MessageQueue": "a queue as clients name it, with its broker, and as a store names it, which has one broker",
    "Producer": "the blocking twin takes the arguments of the asynchronous class",
    "ProtocolError": "the peer broke the protocol: RocketMQ's or the uplink's, which share no module",
    "PullConsumer": "as Producer",
    "PushConsumer": "as Producer",
    "Refused": "a refusal with a code of the protocol: RocketMQ's or the uplink's, which share no module",
}
WIRE_SPELLING = {"netstack/wire/headers.py", "netstack/wire/bodies.py", "netstack/wire/command.py"}


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def foreign_owners(owners: Mapping[str, Iterable[str]]) -> list[str]:
    """Return one sentence for each distribution other than ours that installs one of the six names."""
    return [
        f"{name} is owned by {owner}; it would overwrite ours: pip uninstall {owner}"
        for name in PACKAGES
        for owner in sorted(set(owners.get(name, ())) - {OURS})
    ]


def name_faults(path: str, source: str) -> list[str]:
    """Return classes called by an empty word and wire spelling outside the modules that own it."""
    faults = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ClassDef):
            words = set(re.findall(r"[A-Z][a-z0-9]*", node.name)) & NOT_USED
            faults += [f"{path}:{node.lineno} class {node.name}: {word} says nothing" for word in words]
        if isinstance(node, ast.arg):
            line, name = node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            line, name = node.lineno, node.id
        else:
            continue
        if re.match(r"_*[a-z][a-z0-9]*[A-Z]", name) and path not in WIRE_SPELLING:
            faults.append(f"{path}:{line} {name}: wire spelling belongs into headers, bodies or command")
    return faults


def class_names_defined_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return public class name -> modules, for names that more than one module defines."""
    found: dict[str, set[str]] = {}
    for path, source in sources.items():
        for name in re.findall(r"^ *class ([A-Za-z]\w*)[(:]", source, re.MULTILINE):
            found.setdefault(name, set()).add(path)
    return {name: sorted(paths) for name, paths in found.items() if len(paths) > 1}


def test_the_build_lists_the_six_packages_and_nothing_else(pyproject: dict[str, Any]) -> None:
    listed = pyproject["tool"]["setuptools"]["packages"]["find"]["include"]
    assert sorted(listed) == sorted(f"{name}*" for name in PACKAGES)
    assert "Private :: Do Not Upload" in pyproject["project"]["classifiers"]
    assert pyproject["project"]["name"] == OURS


def test_pytest_finds_the_packages_from_a_bare_checkout(pyproject: dict[str, Any]) -> None:
    options = pyproject["tool"]["pytest"]["ini_options"]
    assert (options["testpaths"], options["pythonpath"]) == (["tests"], ["."])
    assert "--import-mode=importlib" in options["addopts"]


def test_no_init_file_hides_a_package_under_tests() -> None:
    assert [str(path) for path in (ROOT / "tests").rglob("__init__.py")] == []


def test_no_installed_distribution_owns_one_of_the_six_names() -> None:
    assert foreign_owners(importlib.metadata.packages_distributions()) == []


def test_a_planted_foreign_watchdog_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "watchdog-6.0.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: watchdog\nVersion: 6.0.0\n")
    (metadata / "top_level.txt").write_text("watchdog\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (fault,) = foreign_owners(importlib.metadata.packages_distributions())
    assert "pip uninstall watchdog" in fault


def test_each_package_imports_from_this_checkout() -> None:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin == str(ROOT / name / "__init__.py")


def test_class_and_variable_names_follow_the_house() -> None:
    faults = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            faults += name_faults(str(path.relative_to(ROOT)), path.read_text())
    assert faults == []


def test_planted_names_against_the_house_are_found() -> None:
    faults = name_faults(
        "appliance/planted.py", "class TopicConfigManager:\n    def get(self, queueId): topicName = 1\n"
    )
    assert [fault.split(" ", 1)[1].split(":")[0] for fault in faults] == [
        "class TopicConfigManager",
        "queueId",
        "topicName",
    ]
    assert name_faults("netstack/wire/headers.py", "queueId = 3\n") == []


def test_a_class_name_has_one_meaning() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    twice = class_names_defined_twice({str(path.relative_to(ROOT)): path.read_text() for path in paths})
    new = {name: where for name, where in twice.items() if name not in ALIKE}
    assert new == {}, "name each class after what it is, as docs/glossary.md does; ALIKE lists the exceptions"
    assert ALIKE.keys() == twice.keys(), "an exception that is gone"


def test_a_planted_second_meaning_is_found() -> None:
    planted = {"a.py": "class Row: ...\n", "b.py": "def f():\n    class Row: ...\n", "c.py": "class _Row: ...\n"}
    assert class_names_defined_twice(planted) == {"Row": ["a.py", "b.py"]}
    assert class_names_defined_twice({"a.py": "class A:\n    class B: ...\nclass B: ...\n"}) == {}


def test_every_package_says_that_it_is_typed_and_has_its_errors() -> None:
    lacking = [
        f"{name}/{file}" for name in PACKAGES for file in ("py.typed", "errors.py") if not (ROOT / name / file).exists()
    ]
    assert lacking == []


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one worker alone")
def test_the_tests_of_the_form_stay_on_one_worker(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@form"), "pytest and pytest-xdist do not fit: groups are ignored"
