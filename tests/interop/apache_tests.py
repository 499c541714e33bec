"""Apache's own integration tests, its module `test`, run against boxes; writes docs/apache-tests.md.

    make apache-tests SOURCES=…/rocketmq      a clone of github.com/apache/rocketmq
    make apache-tests SOURCES=…/rocketmq ARGS='--versions 4.9.7 --only Order Batch'      a part, without the page

The tests start their brokers in their own process. Here the classes that do so are replaced by those of
tests/interop/apache/, which name boxes that run already; apache_sources.py has all other changes. Each class has a Java
of its own. What fails runs once more, one after the other: on a busy machine a client may miss the time that a test
allows.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import fill
from threading import Timer
from typing import NamedTuple

from tests.interop import jars
from tests.interop.apache_reasons import reason_of
from tests.interop.apache_sources import MODULES, PACKAGE, Module, prepared
from tests.interop.box import Box
from tests.interop.served import QUICK
from tests.interop.verdicts import Verdict, count, merged, passed_late, table
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / ".build" / "apache-tests"
GRPC = "min_invisible_ms = 3\nmin_poll_ms = 0\n"  # as GrpcBaseIT sets its proxy
PULLS = "pull_messages = 1024\n"  # as Apache's IntegrationTestBase sets its brokers
CLASS_S = 1200  # then a class is ended
SLOWEST = ("DelayIT", "PopPriority", "OffsetReset", "StaticTopic", "LagCalculation")  # begin first
HEAD = """# Apache's own tests

Written by `make apache-tests`: the integration tests of Apache's module `test` against boxes that share a NameServer,
set as the tests set their brokers. The classes that would start brokers are replaced (`tests/interop/apache/`); what
tests ask of a broker in their process goes over the wire; all other changes are in `tests/interop/apache_sources.py`.
Several classes run side by side, each in a Java of its own; what fails runs once more alone. What `rocketmq-e2e` says
is in [e2e-tests](e2e-tests.md).

Left out: `container`, `dledger` and `autoswitchrole`, which test brokers of other kinds; `schema` and `lmq`, which need
no broker; `LocalGrpcIT` and `ClusterGrpcIT`, which start a proxy of their own: their tests are those of `GrpcBaseIT`,
here `RemoteGrpcIT` at the port of a box.

The tree of 5.5.0 is a little older than that release and lacks its `PopPriorityIT`. With that class in it, 20 of its 32
tests pass; the others set [switches](pop.md#priorities) of a broker in their process, which has their defaults here.
"""


class Ran(NamedTuple):
    """What became of a module's tests, and which passed at their second run only."""

    module: Module
    found: list[Verdict]
    late: list[str]


class Java(NamedTuple):
    """How to run classes: class path and properties, and the folder for what they write."""

    path: str
    properties: dict[str, str]
    folder: Path


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, help="a clone of github.com/apache/rocketmq, or its git folder")
    parser.add_argument("--versions", nargs="+", choices=MODULES, default=list(MODULES), help="of Apache's tests")
    parser.add_argument("--ref", help="another commit of the sources than each version's own")
    parser.add_argument("--only", nargs="+", default=[], help="parts of the names of classes; then no page is written")
    parser.add_argument("--beside", type=int, default=3, help="classes that run at once (3)")
    parser.add_argument("--report", type=Path, help="write the page there")
    options = parser.parse_args()
    shutil.rmtree(BUILD, ignore_errors=True)
    modules = [MODULES[version]._replace(commit=options.ref or MODULES[version].commit) for version in options.versions]
    ran = [tested(module, options.sources, options.only, options.beside) for module in modules]
    print("\n".join(summary(each) for each in ran))
    if options.report and not options.only:
        options.report.write_text("\n".join([HEAD, *(summary(each) for each in ran)]))
    return 0 if all(each.found for each in ran) else 1


def tested(module: Module, sources: Path, only: list[str], beside: int) -> Ran:
    """Run the tests of a module, or those of classes so named in part, and those that failed once more."""
    folder = BUILD / module.version
    folder.mkdir(parents=True)
    path, names = prepared(module, sources, folder)
    names = [name for name in names if not only or any(part in name for part in only)]
    names.sort(key=lambda name: not any(slow in name for slow in SLOWEST))
    with boxes(module.brokers, folder, GRPC, PULLS) as properties, ThreadPoolExecutor(beside) as pool:
        java = Java(path, properties, folder)
        first = [each for found in pool.map(lambda name: run(java, name), names) for each in found]
        second: list[Verdict] = []
        for name in names:
            failed = {each.name for each in first if each.verdict == "failed" and each.suite == name.split(".")[-1]}
            if failed:
                second += run(java, name, () if "null" in failed else sorted(failed))
    return Ran(module, merged(first, second), passed_late(first, second))


@contextmanager
def boxes(count: int, folder: Path, grpc: str = "", broker: str = "") -> Iterator[dict[str, str]]:
    """Run boxes that share the first one's NameServer; yields what tests are told of them."""
    with ExitStack() as stack:
        started: list[Box] = []
        port = free_port()
        for number in range(1, count + 1):
            config = f"[box]\nname = 'box{number}'\n{QUICK}{broker}"
            config += (
                f"[namesrv]\nregister_at = ['{started[0].namesrv}']\n" if started else f"[grpc]\nport = {port}\n{grpc}"
            )
            box = Box(folder / f"{count}-{number}", config=config)
            box.start()
            stack.callback(box.stop)
            started.append(box)
        named = ",".join(f"box{number}={box.broker}" for number, box in enumerate(started, 1))
        first = started[0].namesrv
        told = {"namesrv": first, "namesrvPort": first.split(":")[1], "grpcPort": str(port)}
        told |= {"cluster": "DefaultCluster", "brokers": named}
        yield {**told, "rocketmq.namesrv.addr": first}  # for clients that a test gives no address


def run(java: Java, name: str, methods: list[str] | tuple[()] = ()) -> list[Verdict]:
    """Run a test class, or some methods of it, in a Java of its own."""
    told = [f"-D{name}={value}" for name, value in java.properties.items()]
    opened = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"]
    command = [*jars.java_command(), *opened, *told, f"-Duser.home={java.folder}", "-Xmx512m", "-cp", java.path]
    command += [f"{PACKAGE}RunTests", PACKAGE + name, *methods]
    suite, found = name.split(".")[-1], []
    with (java.folder / f"{suite}.err").open("ab") as errors:
        process = subprocess.Popen(command, cwd=java.folder, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    watchdog = Timer(CLASS_S, process.kill)
    watchdog.start()
    for line in process.stdout:
        if line.startswith("RESULT\t"):
            found.append(Verdict(*line.rstrip("\n").split("\t", 4)[1:]))
            print(f"{suite}.{found[-1].name}: {found[-1].verdict} {found[-1].reason[:300]}", flush=True)
    watchdog.cancel()
    if process.wait() != 0:
        found.append(Verdict(suite, "null", "failed", f"its Java ended with {process.returncode}"))
    return found


def summary(ran: Ran) -> str:
    """Return a module's part of the page."""
    failed = [each for each in ran.found if each.verdict == "failed"]
    head = f"Tests of {ran.module.commit[:10]}, libraries {ran.module.version}, {ran.module.brokers} boxes: "
    head += f"{count(ran.found, 'passed')} passed, {len(failed)} failed."
    late = fill(f"Passed when they ran again: {', '.join(ran.late)}.", 118) if ran.late else ""
    rows = ["| test that failed | reason |", "| --- | --- |"]
    rows += [f"| {each.suite}.{each.name} | {reason_of(each)} |" for each in failed]
    parts = [f"## {ran.module.version}", head, late, table(ran.found), "\n".join(rows) if failed else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    sys.exit(main())
