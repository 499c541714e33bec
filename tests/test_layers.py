"""Who may import whom: the table of packages, the marks of sans-I/O modules, and what the box must never load."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.parsed import parsed

ROOT = Path(__file__).parent.parent
PACKAGES = ("storage_driver", "netstack", "watchdog", "provisioning", "uplink_spark", "appliance")

# Beside the standard library and the package itself.
TABLE: dict[str, set[str]] = {
    "storage_driver": {"trio", "outcome", "isal"},  # outcome: part of trio's interface; isal in crc.py alone, guarded
    # opentelemetry in client/telemetry.py alone, which nothing imports; lz4 and zstandard at the first such body
    # h2 with its hpack and google.protobuf in grpc/ alone, which is loaded when grpc.port is set
    # h11 in web/ alone, which is loaded when somebody looks in
    "netstack": {"trio", "orjson", "opentelemetry", "lz4", "zstandard", "h2", "hpack", "google", "h11"},
    "watchdog": {"trio", "psutil"},
    "provisioning": {"trio", "serial", "cbor2", "segno"},  # segno on the bench only, loaded by labels.py when it draws
    "appliance": {
        *("trio", "storage_driver", "netstack", "watchdog", "provisioning", "uplink_spark"),
        "yaml",  # guarded, in apache_acl.py alone
        *("jinja2", "markupsafe", "prometheus_client"),  # page and metrics, loaded when first asked for
        "google",  # in grpc/ alone, as in netstack
    },
}
BOX_SIDE = {"trio", "cbor2", "zstandard", "storage_driver"}
UPLINK_BOX = {"wire", "box", "config", "errors"}
GATEWAY_METRICS = {"uplink_spark.centre.metrics", "uplink_spark.centre.metric_families"}
UPLINK_SPARK = {"zone", "spark", "spark_source", "jobs"}
# The rooms of a package: which others each may import, beside itself. What is not named here may import all of them.
_STORE = {"crc", "errors", "named_tuple", "record"}  # what all rooms of the store share
_CLIENT = {
    *("compression", "errors", "faults", "handlers", "ids", "instance", "introspection", "lifetime", "messages"),
    *("records", "routes", "send_request", "statistics", "text"),
}
ROOMS: dict[str, dict[str, set[str]]] = {
    "storage_driver": {
        "record": {"crc", "errors", "named_tuple"},
        "files": {"errors", "named_tuple"},
        "queues": {*_STORE, "files"},
        "log": {*_STORE, "files", "queues"},
        "index": {*_STORE, "files", "queues", "log"},
        "recovery": {*_STORE, "config", "flusher", "files", "queues", "log", "index"},
        "retention": {*_STORE, "config", "appending", "flusher", "lookup", "reader", "files", "queues", "log", "index"},
        "consensus": {"errors", "named_tuple", "files"},
    },
    "netstack": {
        "wire": {"errors", "lazy"},
        "serving": {"errors", "wire"},
        "client": {"errors", "lazy", "wire", "serving"},
        "grpc": {"errors", "wire", "serving"},
        "web": {"serving"},
    },
    "netstack.client": {"produce": _CLIENT, "consume": {*_CLIENT, "produce"}},
    "provisioning": {"packaging": {"errors", "bundle"}},
    "uplink_spark": {
        "errors": set(),
        "bounds": {"errors"},
        "config": {"errors"},
        "wire": {"errors"},
        "zone": {"errors", "wire"},
        "box": {"errors", "config", "wire"},
        "centre": {"errors", "config", "wire", "zone"},
        "spark": {"errors", "wire", "zone"},
        "spark_source": {"errors", "wire", "zone", "spark"},
        "jobs": {"errors", "bounds", "wire", "zone", "spark", "spark_source", "testing"},
    },
    "uplink_spark.box": {
        "receipts": {"caps"},
        "cutting": {"receipts"},
        "link": {"receipts", "caps", "figures", "plan"},
    },
    "appliance.broker": {
        "filter": set(),
        "rights": set(),
        "intake": set(),
        "large_bodies": set(),
        "tables": {"filter", "rights"},
        "acknowledging": {"tables"},
        "delay": {"intake", "tables"},
        "publish": {"acknowledging", "intake", "large_bodies", "rights", "tables", "delay"},
        "consume": {"intake", "large_bodies", "rights", "tables", "filter"},
        "transactions": {"acknowledging", "intake", "rights", "tables", "delay"},
        "pop": {"intake", "rights", "tables", "filter", "delay", "consume"},
        "pop_requests": {"tables", "filter", "pop"},
        "access": {"rights", "tables", "consume", "pop"},
        "admin": {"acknowledging", "rights", "tables", "filter", "delay", "consume", "access", "pop"},
    },
}
NEVER_ON_THE_BOX = {"numpy", "pyarrow", "deltalake", "pyspark", "pandas", "py4j"}

SANS_IO = {
    *(f"storage_driver.{name}" for name in ("record", "retention.rules", "named_tuple", "crc")),
    *(f"storage_driver.consensus.{m}" for m in ("core", "effects", "elections", "following", "hard_state", "leading")),
    *(f"storage_driver.consensus.{m}" for m in ("leaving", "log_state", "member_state", "members", "membership")),
    *(f"storage_driver.consensus.{m}" for m in ("messages", "pending", "quorum", "roles", "rules", "safety", "terms")),
    *(
        f"netstack.wire.{m}"
        for m in ("frame", "command", "codes", "ext", "headers", "headers_admin", "headers_namesrv", "headers_pop")
    ),
    *(
        f"netstack.wire.{m}"
        for m in ("bodies", "bodies_admin", "bodies_pop", "bodies_route", "fastjson", "json_text", "lenient_json")
    ),
    *(f"netstack.wire.{m}" for m in ("acl", "conversation", "header_cache", "json_body", "replication", "send_reply")),
    *(f"netstack.client.{m}" for m in ("faults", "routes", "ids", "messages", "records", "send_request", "statistics")),
    *(f"netstack.client.{m}" for m in ("text", "errors")),
    *(
        f"netstack.grpc.{m}"
        for m in ("limits", "status", "frame_gate", "header_block", "link_state", "call_events", "uploads", "http2")
    ),
    *(f"appliance.grpc.{m}" for m in ("outcome", "send_shape")),
    *(f"netstack.client.consume.{m}" for m in ("rebalance", "process_queue", "subscriptions")),
    *(f"appliance.replication.{name}" for name in ("assembling", "slave_progress", "slicing")),
    "appliance.group.copies.pieces",
    "appliance.group.links.frames",
    *(f"appliance.namesrv.{name}" for name in ("route_table", "kv_config")),
    *(f"appliance.broker.filter.{name}" for name in ("subscriptions", "sql92")),
    *(f"appliance.broker.pop.{name}" for name in ("pop_queue", "pop_records", "retry_topics")),
    "appliance.broker.access.permissions",
    *(f"watchdog.{name}" for name in ("proof", "reset_reason", "escalate")),
    "provisioning.frame",
    *(f"uplink_spark.{name}" for name in ("wire.batch", "box.plan", "zone.manifest")),
}
PURE_LIBRARIES = {"cbor2", "orjson", "isal", "zstandard", "lz4", "numpy", "h2", "hpack", "google"}
IO_MODULES = {
    "asyncio",
    "concurrent",
    "fcntl",
    "http",
    "mmap",
    "multiprocessing",
    "os",
    "sched",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "socketserver",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "_thread",
    "time",
    "trio",
}
CALLS_OUT = {"open", "datetime.now", "datetime.datetime.now", "random.random", "random.randint", "random.choice"}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module as the source names it, made absolute; `guarded` when a try catches its absence."""

    line: int
    target: str
    guarded: bool


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    path: Path
    tree: ast.Module
    imports: tuple[Import, ...]

    @property
    def package(self) -> str:
        return self.name.split(".")[0]


def _catches_import_error(node: ast.Try) -> bool:
    return any(handler.type is not None and "ImportError" in ast.unparse(handler.type) for handler in node.handlers)


def _imports(tree: ast.Module, name: str, is_package: bool) -> Iterator[Import]:
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and _catches_import_error(node)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, id(node) in guarded)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(node.lineno, f"{base}.{alias.name}", id(node) in guarded)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
            for argument in [each for each in node.args[:1] if isinstance(each, ast.Constant)]:
                yield Import(node.lineno, str(argument.value), id(node) in guarded)


def read_modules(root: Path) -> dict[str, Module]:
    """Return every module of the packages below root by its dotted name."""
    modules = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            tree = parsed(path.read_text())
            modules[name] = Module(name, path.relative_to(root), tree, tuple(_imports(tree, name, is_package)))
    return modules


def allowed_for(module: Module) -> set[str]:
    """Return the top-level names that the module may import besides the standard library and its own package."""
    if module.package != "uplink_spark":
        return TABLE[module.package]
    part = module.name.partition(".")[2].split(".")[0]
    if part in UPLINK_BOX:
        return BOX_SIDE
    if module.name in GATEWAY_METRICS:
        return BOX_SIDE | {"netstack", "prometheus_client"}
    return BOX_SIDE | {"numpy"} | ({"pyarrow", "deltalake", "pyspark", "py4j"} if part in UPLINK_SPARK else set())


def direction_faults(modules: dict[str, Module]) -> list[str]:
    """Return what goes against the table of packages, one sentence each."""
    faults = []
    for module in modules.values():
        allowed = allowed_for(module) | {module.package}
        box_side = module.package == "uplink_spark" and allowed_for(module) is BOX_SIDE
        for found in module.imports:
            top = found.target.split(".")[0]
            where = f"{module.path}:{found.line}"
            if top not in sys.stdlib_module_names and top not in allowed:
                faults.append(f"{where} imports {top}; {module.name} may import {', '.join(sorted(allowed))}")
            if top == "zstandard" and box_side and not found.guarded:
                faults.append(f"{where} imports zstandard without `except ImportError`; the box may lack it")
    return faults


def room_faults(modules: dict[str, Module]) -> list[str]:
    """Return what goes against the table of rooms, one sentence each."""
    faults = []
    for package, rooms in ROOMS.items():
        for module in modules.values():
            room = _room(module.name, package)
            for found in module.imports if room in rooms else ():
                target = _room(resolve(modules, found.target) or "", package)
                if target and target != room and target not in rooms[room]:
                    faults.append(f"{module.path}:{found.line} imports {found.target}: {room} may not import {target}")
    return faults


def _room(name: str, package: str) -> str:
    return name[len(package) + 1 :].partition(".")[0] if name.startswith(package + ".") else ""


def resolve(modules: dict[str, Module], target: str) -> str | None:
    """Return the module of ours that an imported name lives in, None for a foreign one."""
    while target:
        if target in modules:
            return target
        target = target.rpartition(".")[0]
    return None


def sans_io_faults(modules: dict[str, Module], marked: set[str]) -> list[str]:
    """Return where a marked module, or one that it imports, reaches for I/O, a clock or a thread."""
    faults = []
    waiting = sorted(marked & modules.keys())
    held = set(waiting)
    while waiting:
        module = modules[waiting.pop(0)]
        for found in module.imports:
            ours, top = resolve(modules, found.target), found.target.split(".")[0]
            if ours is not None and ours not in held:
                held.add(ours)
                waiting.append(ours)
            elif ours is None and (top in IO_MODULES or top not in sys.stdlib_module_names | PURE_LIBRARIES):
                faults.append(f"{module.path}:{found.line} is sans-I/O and imports {top}")
        for node in ast.walk(module.tree):
            where = f"{module.path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, (ast.AsyncFunctionDef, ast.Await)):
                faults.append(f"{where} is sans-I/O and has {type(node).__name__}")
            if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS_OUT:
                faults.append(f"{where} is sans-I/O and calls {ast.unparse(node.func)}")
    return faults


def reached_from(modules: dict[str, Module], start: str) -> dict[str, list[str]]:
    """Return every import target reachable from a package, with the chain of modules that leads there."""
    chains: dict[str, list[str]] = {name: [name] for name in modules if name.split(".")[0] == start}
    waiting = list(chains)
    while waiting:
        name = waiting.pop()
        for found in modules[name].imports:
            target = resolve(modules, found.target) or found.target.split(".")[0]
            if target not in chains:
                chains[target] = [*chains[name], target]
                if target in modules:
                    waiting.append(target)
    return chains


def box_faults(modules: dict[str, Module]) -> list[str]:
    chains = reached_from(modules, "appliance")
    return [f"the box loads {name}: {' → '.join(chains[name])}" for name in sorted(NEVER_ON_THE_BOX & chains.keys())]


def circles(modules: dict[str, Module]) -> list[list[str]]:
    """Return the groups of modules that import one another, by whatever way: late, guarded, for types alone.

    A package's own module is not looked at: its parts may stand beside each other. Source: Tarjan's algorithm, by
    what each module reaches.
    """
    names = [name for name, module in modules.items() if module.path.name != "__init__.py"]
    targets = {
        name: {found for each in modules[name].imports if (found := resolve(modules, each.target)) in names} - {name}
        for name in names
    }
    reach: dict[str, set[str]] = {}
    for name in names:
        seen, waiting = set[str](), [name]
        while waiting:
            for target in targets[waiting.pop()] - seen:
                seen.add(target)
                waiting.append(target)
        reach[name] = seen
    groups = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in names}
    return sorted(list(group) for group in groups if len(group) > 1)


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_modules(ROOT)


def test_every_import_follows_the_table_of_packages(modules: dict[str, Module]) -> None:
    faults = direction_faults(modules)
    assert not faults, "\n".join(faults)


def test_the_meaning_of_a_send_and_of_a_read_knows_no_wire(modules: dict[str, Module]) -> None:
    pop = ("pop_queue", "pop_records", "pop_table", "pop_waits", "retry_topics", "copies", "revival", "engine")
    for name in ("publish.publishing", "consume.reading", "intake", *(f"pop.{each}" for each in pop)):
        targets = {found.target for found in modules[f"appliance.broker.{name}"].imports}
        assert not {
            target for target in targets if target.startswith(("netstack.wire.command", "netstack.wire.conversation"))
        }


def test_every_room_of_a_package_imports_the_rooms_it_may(modules: dict[str, Module]) -> None:
    assert room_faults(modules) == []
    for package, rooms in ROOMS.items():
        there = {_room(name, package) for name in modules}
        assert rooms.keys() <= there, f"no such room of {package}: {rooms.keys() - there}"


def test_a_planted_import_against_the_table_of_rooms_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "uplink_spark.centre.gateway", "")
    plant(tmp_path, "uplink_spark.box.shipper", "from uplink_spark.wire import link\n")
    found = plant(tmp_path, "uplink_spark.wire.link", "def late():\n    from uplink_spark.centre import gateway\n")
    assert room_faults(found) == [
        "uplink_spark/wire/link.py:2 imports uplink_spark.centre.gateway: wire may not import centre"
    ]


def test_marked_modules_reach_for_no_input_output_clock_or_thread(modules: dict[str, Module]) -> None:
    faults = sans_io_faults(modules, SANS_IO)
    assert modules.keys() >= SANS_IO, f"no such module: {SANS_IO - modules.keys()}"
    assert not faults, "\n".join(faults)


def test_the_box_never_loads_what_belongs_to_the_centre(modules: dict[str, Module]) -> None:
    assert box_faults(modules) == []


def test_no_modules_import_one_another_not_even_late_or_for_types(modules: dict[str, Module]) -> None:
    assert circles(modules) == []


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "netstack.one", "def late():\n    from netstack.two import x\n")
    plant(
        tmp_path,
        "netstack.two",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from netstack.three import y\n",
    )
    found = plant(tmp_path, "netstack.three", "import netstack.one\n")
    assert circles(found) == [["netstack.one", "netstack.three", "netstack.two"]]


def plant(root: Path, name: str, source: str) -> dict[str, Module]:
    path = root / (name.replace(".", "/") + ".py")
    for folder in [path.parent, *path.parent.parents]:
        if folder == root:
            break
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    path.write_text(source)
    return read_modules(root)


@pytest.mark.parametrize(
    ("name", "source", "fault"),
    [
        ("storage_driver.planted", "import netstack.wire.frame\n", "imports netstack"),
        ("netstack.planted", "from storage_driver.record import Message\n", "imports storage_driver"),
        ("watchdog.planted", "def late():\n    import appliance\n", "imports appliance"),
        ("provisioning.planted", "import requests\n", "imports requests"),
        ("uplink_spark.box.shipper", "import numpy\n", "imports numpy"),
        ("uplink_spark.centre.ingest", "import pyarrow\n", "imports pyarrow"),
        ("uplink_spark.wire.batch", "import zstandard\n", "without `except ImportError`"),
        ("appliance.planted", "import importlib\nimportlib.import_module('psutil')\n", "imports psutil"),
    ],
)
def test_a_planted_import_against_the_table_is_found(tmp_path: Path, name: str, source: str, fault: str) -> None:
    faults = direction_faults(plant(tmp_path, name, source))
    assert len(faults) == 1
    assert fault in faults[0]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("uplink_spark.jobs.bronze", "import pyspark, pyarrow, numpy, cbor2\n"),
        ("uplink_spark.wire.batch", "try:\n    import zstandard\nexcept ImportError:\n    zstandard = None\n"),
        (
            "netstack.client.produce.producer",
            "from ..channel import open_channel\nfrom . import faults\nimport trio, orjson, json\n",
        ),
    ],
)
def test_what_the_table_allows_passes(tmp_path: Path, name: str, source: str) -> None:
    assert direction_faults(plant(tmp_path, name, source)) == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import trio\n", "imports trio"),
        ("from time import monotonic\n", "imports time"),
        ("import os.path\n", "imports os"),
        (
            "from netstack.serving.server import serve_remoting\n",
            "netstack/serving/server.py:1 is sans-I/O and imports trio",
        ),
        ("from ..serving import server\n", "netstack/serving/server.py:1"),
        ("def read(path):\n    return open(path).read()\n", "calls open"),
        ("async def wait(): ...\n", "AsyncFunctionDef"),
    ],
)
def test_a_planted_reach_out_of_a_marked_module_is_found(tmp_path: Path, source: str, fault: str) -> None:
    plant(tmp_path, "netstack.serving.server", "import trio\n")
    faults = sans_io_faults(plant(tmp_path, "netstack.wire.frame", source), SANS_IO)
    assert len(faults) == 1
    assert fault in faults[0]


def test_a_planted_road_from_the_box_to_numpy_is_found_with_its_chain(tmp_path: Path) -> None:
    plant(tmp_path, "uplink_spark.centre.zone_files.landing", "import numpy\n")
    modules = plant(tmp_path, "appliance.serve", "from uplink_spark.centre.zone_files import landing\n")
    assert box_faults(modules) == [
        "the box loads numpy: appliance.serve → uplink_spark.centre.zone_files.landing → numpy"
    ]
