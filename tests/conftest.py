"""What every test gets: `async def` under trio, `soak` only when asked for, a list of what wants the mark `slow`."""

import gc
import inspect
import os
import runpy
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import trio.testing

import appliance.compiled  # before any module of the product: it decides whether they are compiled or pure
from storage_driver.retention.rules import RetentionRules

SLOW_S = 0.25  # above this a test carries the marker `slow`
HANGS_S = 600  # above this a test that is not marked `soak` hangs: it fails, and the others go on
# What takes minutes goes first, so that no worker ends long after the others (pytest-xdist, --dist loadgroup).
LANES = (
    "systemd",
    "java 4.9.7",
    "spark",
    "java 5.5.0",
    "test_kills",
    "test_go_and_node",
    "test_store_files",
    "client",
)
# A stall of a shared machine may hit any test: each gets a second try, and the summary names what needed it.
# Never what proves that nothing is lost: there one failure is a finding.
PROOFS = {
    "test_grpc_kills",
    "test_kills",
    "test_rounds_of_kills",
    "test_store_files",
    "test_power_cut",
    "test_ext4",
    "test_failing_sync",
    "test_disk_faults",
    "test_read_faults",
}
EXAMPLES = 50  # of a test of hypothesis that names no number; --soak: ten times as many
MARKS = RetentionRules()  # what a box on a full disk does
_unmarked: list[tuple[float, str]] = []
_fullest = 0  # percent of the disk under the tests, at the end of any of them


gc.disable()  # until all tests are collected: nothing of them is garbage, and a quarter of the time went into looking


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the tests marked soak as well (minutes to hours)")
    parser.addoption("--interop-table", metavar="FILE", help="write what stock clients were seen to do as a table")
    parser.addoption("--interop-rows", metavar="FILE", help="the same, of a part of the tests: other rows stay")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("ROCKETBOX_PURE") == "0" and (why := appliance.compiled.why_pure()):
        pytest.exit(f"ROCKETBOX_PURE=0 asks for the compiled modules, but: {why}", returncode=2)
    # The same examples in every run, so that a change alone can turn a test red; --soak looks for new ones.
    # No deadline: what a loaded machine takes for an example says nothing.
    soak = config.getoption("--soak")
    hypothesis.settings.register_profile(
        "rocketbox",
        derandomize=not soak,
        max_examples=10 * EXAMPLES if soak else EXAMPLES,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("rocketbox")
    if not hasattr(config, "workerinput"):  # a bare checkout has no modules of the gRPC messages
        runpy.run_path(str(Path(__file__).parents[1] / "systemd/proto_modules.py"), run_name="__main__")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `soak`, unless --soak was given; with several workers sort the rest into lanes."""
    if not config.getoption("--soak"):
        left_out = [item for item in items if item.get_closest_marker("soak")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("soak")]
    for item in items:
        if _lane(item) not in PROOFS:
            item.add_marker(pytest.mark.flaky(reruns=1))
    if hasattr(config, "workerinput"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(_lane(item)))
        items.sort(key=lambda item: LANES.index(lane) if (lane := _lane(item)) in LANES else len(LANES))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("pure") and not appliance.compiled.why_pure():
        pytest.skip("looks into modules that are compiled here; ROCKETBOX_PURE=1 runs it")


def _lane(item: pytest.Item) -> str:
    """Return what of a worker's a test shares with others: a machine, a JVM, a Spark, trees; else its file alone."""
    fixtures = set(getattr(item, "fixturenames", ()))
    version = getattr(item, "callspec", None) and item.callspec.params.get("jvm")  # type: ignore[attr-defined]
    folder, *below = item.path.relative_to(item.config.rootpath).parts[1:]
    if fixtures & {"go", "node"}:
        return "test_go_and_node"  # built once
    if version or (folder == "interop" and "jvm4" in fixtures):
        return f"java {version or '4.9.7'}"
    if "spark" in fixtures or folder == "systemd":
        return "spark" if "spark" in fixtures else folder
    if folder == "netstack" and below[0] == "client" and fixtures & {"own_cluster", "namesrv", "jvm4"}:
        return "client"
    return item.path.stem if below else "form"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Wrap an `async def` test, plain or under hypothesis, so that it runs in a trio loop of its own."""
    test: Any = pyfuncitem.obj
    inner = getattr(test, "hypothesis", None)
    if inner is not None:
        if inspect.iscoroutinefunction(inner.inner_test):
            inner.inner_test = trio.testing.trio_test(inner.inner_test)
    elif inspect.iscoroutinefunction(test):
        pyfuncitem.obj = trio.testing.trio_test(test)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """End a test that hangs: whatever it waits for, its main thread gets an exception."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"{item.nodeid} did not end within {HANGS_S} s")

    if item.get_closest_marker("soak"):
        return (yield)
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANGS_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how full the disk is, and a passed test that took longer than its marks admit."""
    global _fullest
    disk = shutil.disk_usage(Path(__file__).parent)
    _fullest = max(_fullest, 100 * disk.used // (disk.used + disk.free))
    if (
        report.when == "call"
        and report.passed
        and report.duration > SLOW_S
        and not {"slow", "soak"} & set(report.keywords)
    ):
        _unmarked.append((report.duration, report.nodeid))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what had to be tried twice and why, what ran longer than SLOW_S without the mark, and a disk too full."""
    if _fullest >= MARKS.delete_percent:
        terminalreporter.section(f"the disk was {_fullest} % full")
        text = f"Boxes delete above {MARKS.delete_percent} % and refuse above {MARKS.refuse_percent} %"
        terminalreporter.line(f"{text}, so their tests fail. Free 10 GB.")
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed at the first try: {report.nodeid}")
        terminalreporter.line(report.longreprtext[-4000:])
    if _unmarked:
        terminalreporter.section(f"over {SLOW_S} s and not marked slow")
        for seconds, name in sorted(_unmarked, reverse=True)[:20]:
            terminalreporter.line(f"{seconds:6.2f} s  {name}")


@pytest.fixture(scope="module")
def module_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that the tests of a file share; it goes with the last of them, for a box in it holds a GiB."""
    folder = tmp_path_factory.mktemp("module")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def mock_clock() -> trio.testing.MockClock:
    """A clock that stands still until the test moves it."""
    return trio.testing.MockClock()


@pytest.fixture
def autojump_clock(monkeypatch: pytest.MonkeyPatch) -> trio.testing.MockClock:
    """A clock that jumps to the next deadline whenever every task waits.

    It would jump as well while a thread works, so what is meant for one is called in place.
    """

    async def in_place(call: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return call(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", in_place)
    return trio.testing.MockClock(autojump_threshold=0)


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of every Spark that tests start, here and in processes of their own."""
    from tests.spark_home import make_spark_home

    environment = make_spark_home(tmp_path_factory.mktemp("spark-home"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield environment


@pytest.fixture(scope="session")
def spark(spark_home: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One SparkSession for all tests that need one: local, two slots, no UI."""
    from uplink_spark.jobs.session import open_session
    from uplink_spark.spark_source import register

    folder = tmp_path_factory.mktemp("spark")
    session = open_session(
        "tests",
        master="local[2]",
        settings={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.shuffle.partitions": "2",
        },
    )
    register(session)
    yield session
    session.stop()
