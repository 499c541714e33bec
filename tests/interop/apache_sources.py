"""Apache's integration tests of one version: their sources with what is changed in them, their libraries, compiled."""

import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from tests.interop import jars

SHIMS, TESTS = Path(__file__).parent / "apache", "test/src/test/java/org/apache/rocketmq/test"
PACKAGE = "org.apache.rocketmq.test."
MINUTES_S = 1200
REMOTE = [  # classes that would start a NameServer and brokers → those that know where they run
    (r"\borg\.apache\.rocketmq\.broker\.BrokerController\b", f"{PACKAGE}base.RemoteBroker"),
    (r"\borg\.apache\.rocketmq\.namesrv\.NamesrvController\b", f"{PACKAGE}base.RemoteNamesrv"),
    (r"\bBrokerController\b", "RemoteBroker"),
    (r"\bNamesrvController\b", "RemoteNamesrv"),
]


class Module(NamedTuple):
    """Apache's module `test` of one version."""

    version: str  # of the client and the test libraries
    commit: str  # of the tree
    shims: tuple[str, ...]  # folders below SHIMS
    brokers: int
    libraries: tuple[tuple[str, str, str], ...]
    edits: tuple[tuple[str, str, str], ...] = ()  # file, regular expression, replacement
    added: tuple[str, ...] = ()  # classes of the shims with tests
    left_out: tuple[str, ...] = ()  # folders and classes, beside those that need no broker or another kind of it


def _rocketmq(version: str, *names: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((jars.GROUP, f"rocketmq-{name}", version) for name in names)


JUNIT = (("junit", "junit", "4.13.2"), ("com.google.truth", "truth", "0.30"))
LATEST = Module(
    version="5.5.0",
    commit="8fc57f1468d182eea11c01e089c0250d647dc5f3",
    shims=("any", "v5"),
    brokers=3,
    libraries=(
        *_rocketmq("5.5.0", "proxy", "tools"),
        *JUNIT,
        *(("org.awaitility", "awaitility", "4.1.0"), ("org.assertj", "assertj-core", "3.22.0")),
        ("io.grpc", "grpc-testing", "1.53.0"),
    ),
    edits=(
        ("grpc/v2/GrpcBaseIT", r"\bintConfig\(\)", "initConfig()"),  # as 5.5.0 spells it
        ("grpc/v2/GrpcBaseIT", r"private int port", "protected int port"),
        ("grpc/v2/GrpcBaseIT", r"Encoding\.GZIP", "Encoding.IDENTITY"),  # the bodies are plain
        ("grpc/v2/GrpcBaseIT", r"\bBROKER_NUM\b", "1"),  # a box answers for itself, not for all of its cluster
        ("client/producer/batch/BatchSendIT", r"instanceof DefaultMessageStore", "!= null"),
    ),
    added=("grpc.v2.RemoteGrpcIT",),
    left_out=("autoswitchrole", "container", "grpc/v2/LocalGrpcIT", "grpc/v2/ClusterGrpcIT"),
)
OLD = Module(
    version="4.9.7",
    commit="5eb2e4ca0e18e80b91a38cf6f31429966d349e41",
    shims=("any", "v4"),
    brokers=2,
    libraries=(
        *_rocketmq("4.9.7", "broker", "tools"),
        *JUNIT,
        *(("org.assertj", "assertj-core", "2.6.0"), ("log4j", "log4j", "1.2.17")),
    ),
)
MODULES = {module.version: module for module in (OLD, LATEST)}
NO_BROKER = ("dledger", "schema", "lmq")  # brokers of another kind; the client's own classes; a client without a broker


def prepared(module: Module, sources: Path, folder: Path) -> tuple[str, list[str]]:
    """Unpack, change and compile the tests of a module into a folder; return the class path and the classes' names."""
    unpacked(sources, module.commit, "test/src", folder)
    names = _classes(module, folder / TESTS)
    _edit(module, folder / TESTS)
    libraries = fetched(f"apache-tests-{module.version}", module.libraries)
    path = f"{libraries}/*:{folder / 'classes'}:{folder / 'test/src/test/resources'}"
    _compile(module, folder, path, names)
    return path, names


def unpacked(sources: Path, ref: str, path: str, into: Path) -> None:
    """Put a folder of a commit into another folder."""
    packed = subprocess.run(["git", "-C", str(sources), "archive", ref, path], check=True, capture_output=True)
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(into, filter="data")


def _classes(module: Module, tests: Path) -> list[str]:
    """Return the names of the classes with tests, in order, less PACKAGE."""
    found = list(module.added)
    for file in tests.rglob("*IT.java"):
        name = file.relative_to(tests).with_suffix("").as_posix()
        left_out = any(part in (name, *name.split("/")) for part in (*module.left_out, *NO_BROKER))
        text = file.read_text()
        if not left_out and "@Test" in text and "abstract class" not in text and "Base" not in file.stem:
            found.append(name.replace("/", "."))
    return sorted(found)


def _edit(module: Module, tests: Path) -> None:
    """Change the sources: other classes for those that start brokers, and the edits of the module."""
    for file in tests.rglob("*.java"):
        changes = REMOTE + [(old, new) for name, old, new in module.edits if file == tests / f"{name}.java"]
        text = file.read_text()
        for old, new in changes:
            text = re.sub(old, new, text)
        file.write_text(text)


def _compile(module: Module, folder: Path, path: str, names: list[str]) -> None:
    classes, places = folder / "classes", [SHIMS / shim for shim in module.shims]
    classes.mkdir()
    places += [folder / "test/src/main/java", folder / "test/src/test/java"]
    files = [
        str(file)
        for name in [*names, "RunTests"]
        for place in places
        if (file := place / f"{(PACKAGE + name).replace('.', '/')}.java").exists()
    ]
    found = ":".join(str(place) for place in places)
    (folder / "files").write_text("\n".join(files))
    command = ["javac", "-nowarn", "-proc:none", "-cp", path, "-sourcepath", found, "-d", str(classes)]
    subprocess.run([*command, f"@{folder / 'files'}"], check=True)


def fetched(name: str, libraries: tuple[tuple[str, str, str], ...]) -> Path:
    """Return the folder of the jars, fetched once by Maven."""
    folder = jars.CACHE / name
    with jars.alone():
        if not (folder / ".complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            rows = "".join(
                f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
                f"<version>{version}</version></dependency>"
                for group, name, version in libraries
            )
            head = '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            what = "<groupId>rocketbox</groupId><artifactId>tests</artifactId><version>1</version>"
            what += "<packaging>pom</packaging>"
            (folder / "pom.xml").write_text(f"{head}{what}<dependencies>{rows}</dependencies></project>")
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
            command = ["mvn", "-q", "-B", *goal, f"-Dmaven.repo.local={jars.CACHE / 'repository'}"]
            subprocess.run(command, cwd=folder, check=True, timeout=MINUTES_S)
            (folder / ".complete").touch()
    return folder
