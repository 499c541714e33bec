"""Stock clients against the box: one JVM per client version and session, one box per session, a table of verdicts."""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import py4j.java_gateway
import py4j.protocol
import pytest

from tests.interop import jars
from tests.interop.apache_proxy import apache_proxy
from tests.interop.box import Box, Foreign
from tests.interop.grpc_java import JAVA_VERSION
from tests.interop.jvm import Jvm
from tests.interop.programs import (
    Program,
    go5_program,
    go_program,
    node5_program,
    node_program,
    python5_program,
    rust5_program,
)
from tests.interop.served import APACHE, GrpcBox, Served
from tests.interop.table import FAILS, Seen, table_of

QUICK_CHECKS = "[broker]\ntransaction_timeout_s = 1\ntransaction_check_s = 2\n"
JAVA_VERSIONS = tuple(os.environ.get("INTEROP_JAVA", "4.9.7 5.5.0").split())
# What takes many seconds and passes no code of ours that knows versions: with the newest, with the others in soak.
ONE_VERSION = pytest.mark.parametrize(
    "jvm", [*(pytest.param(v, marks=pytest.mark.soak) for v in JAVA_VERSIONS[:-1]), JAVA_VERSIONS[-1]], indirect=True
)


@pytest.fixture(autouse=True)
def _java_errors_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark session of the same process makes py4j read every Java error as one of Spark's: not here."""
    monkeypatch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)


@pytest.fixture(scope="session", params=JAVA_VERSIONS)
def jvm(request: pytest.FixtureRequest) -> Iterator[Jvm]:
    """A JVM with the official client of one version. A test that needs only one asks for `jvm4`."""
    yield from _jvm(request.param)


@pytest.fixture(scope="session")
def jvm4() -> Iterator[Jvm]:
    yield from _jvm("4.9.7")


@pytest.fixture(scope="session")
def jvm5() -> Iterator[Jvm]:
    yield from _jvm("5.5.0")


def _jvm(version: str) -> Iterator[Jvm]:
    try:
        started = Jvm(version)
    except jars.Unavailable as error:
        pytest.skip(str(error))
    yield started
    started.close()


@pytest.fixture(scope="session")
def go() -> Program:
    return _program(go_program)


@pytest.fixture(scope="session")
def node() -> Program:
    return _program(node_program)


def _program(build: Callable[[], Program]) -> Program:
    try:
        return build()
    except jars.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box | Foreign]:
    """The box that all tests of this session share, or the cluster that INTEROP_NAMESRV names."""
    if "INTEROP_NAMESRV" in os.environ:
        yield Foreign(os.environ["INTEROP_NAMESRV"])
        return
    box = Box(tmp_path_factory.mktemp("box") / "data", config=QUICK_CHECKS)
    box.start()
    yield box
    assert box.stop() == 0, box.log_tail()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A box of the test's own, for tests that kill or restart it."""
    box = Box(tmp_path / "data")
    box.start()
    yield box
    if box.running:
        box.stop()


@pytest.fixture(scope="module")
def box5(module_path: Path) -> Iterator[GrpcBox]:
    """A box with its gRPC port open."""
    box = GrpcBox(module_path / "data")
    box.start()
    yield box
    assert box.stop() == 0, box.log_tail()


@pytest.fixture(scope="module", params=["box", pytest.param(APACHE, marks=pytest.mark.soak)])
def served(request: pytest.FixtureRequest, module_path: Path) -> Iterator[Served]:
    """A box, and beside it what it is compared with."""
    if request.param != APACHE:
        yield request.getfixturevalue("box5")
        return
    try:
        with apache_proxy(module_path / "apache") as proxy:
            yield proxy
    except jars.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def java5() -> Iterator[Jvm]:
    """A JVM with the official Java client of RocketMQ 5."""
    try:
        started = Jvm(JAVA_VERSION, artifact="rocketmq-client-java")
    except jars.Unavailable as error:
        pytest.skip(str(error))
    yield started
    started.close()


@pytest.fixture(scope="module")
def home(module_path: Path) -> dict[str, str]:
    """Where gRPC clients write their logs, whatever they are told."""
    home = module_path / "home"
    home.mkdir()
    return {"HOME": str(home)}


@pytest.fixture(scope="session")
def python5() -> Program:
    return _program(python5_program)


@pytest.fixture(scope="session")
def node5() -> Program:
    return _program(node5_program)


@pytest.fixture(scope="session")
def rust5() -> Program:
    return _program(rust5_program)


@pytest.fixture(scope="session")
def go5() -> Program:
    return _program(go5_program)


_seen: list[Seen] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the verdict of each test that names a feature, of its second try if it has one: works, fails, not tried."""
    report = yield
    mark, params = item.get_closest_marker("feature"), _params_of(item)
    of_a_box = APACHE not in params.values()
    again = report.failed and getattr(item, "execution_count", 2) == 1 and item.get_closest_marker("flaky") is not None
    if mark is not None and of_a_box and not again and (report.when == "call" or report.outcome != "passed"):
        client = mark.kwargs.get("client") or f"Java {params.get('jvm', params.get('version', JAVA_VERSIONS[0]))}"
        outcome = {"passed": "works", "failed": FAILS}.get(report.outcome, "not tried")
        seen = Seen(item.location[0], item.location[1] or 0, client, mark.args[0], outcome)
        report.user_properties.append(("seen", tuple(seen)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the verdicts where the table is written, also those of workers."""
    for name, value in report.user_properties:
        if name == "seen" and isinstance(value, tuple | list):
            _seen.append(Seen(*value))


def _params_of(item: pytest.Item) -> dict[str, str]:
    callspec = getattr(item, "callspec", None)
    return {name: str(value) for name, value in callspec.params.items()} if callspec else {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _seen and not hasattr(session.config, "workerinput"):
        if table := session.config.getoption("--interop-table"):
            Path(table).write_text(table_of(_seen))
        if rows := session.config.getoption("--interop-rows"):
            Path(rows).write_text(table_of(_seen, Path(rows).read_text()))
