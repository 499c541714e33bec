"""The Java cases of rocketmq-e2e for the clients of both generations, run against a box; writes docs/e2e-tests.md.

    make e2e-tests SOURCES=…/rocketmq-e2e      a clone of github.com/apache/rocketmq-e2e
    make e2e-tests SOURCES=…/rocketmq-e2e ARGS='--clients remoting'      those of one client, without the page

The cases are unchanged. What fails runs once more, one after the other: on a busy machine a client may miss the time
that a case allows.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from threading import Timer
from typing import NamedTuple

from tests.interop import jars
from tests.interop.apache_sources import fetched, unpacked
from tests.interop.apache_tests import ROOT, boxes
from tests.interop.verdicts import Verdict, count, table

RUNNER, BUILD = Path(__file__).parent / "e2e", ROOT / ".build" / "e2e-tests"
COMMIT = "7811611ec0954799ba1dc4286a64d86acc7378bc"
LOMBOK = "1.18.36"  # that of the cases knows no Java after 15
JUPITER, LAUNCHER = "5.7.2", "1.7.2"
COMMON = (
    *(("org.projectlombok", "lombok", LOMBOK), ("org.awaitility", "awaitility", "4.0.3")),
    ("org.junit.platform", "junit-platform-launcher", LAUNCHER),
    *(("org.junit.jupiter", f"junit-jupiter-{part}", JUPITER) for part in ("api", "engine", "params")),
    *(("ch.qos.logback", f"logback-{part}", "1.3.0-beta0") for part in ("classic", "core")),
    ("org.slf4j", "slf4j-api", "2.0.0-beta1"),
)


class Suite(NamedTuple):
    """The cases for one client."""

    folder: str  # of the sources
    client: str
    version: str  # of the client, as its pom.xml says
    needed: tuple[tuple[str, str, str], ...]
    first: str = ""  # jar that stands before all others


SUITES = {
    "grpc": Suite(
        "java/e2e",
        "gRPC client",
        "5.0.3",
        (
            *(
                ("org.apache.rocketmq", *row)
                for row in (("rocketmq-client-java", "5.0.3"), ("rocketmq-tools", "5.0.0"))
            ),
            *(("org.apache.rocketmq", "rocketmq-acl", "5.0.0"), ("com.squareup.okhttp", "okhttp", "2.7.5")),
            ("com.alibaba", "dns-cache-manipulator", "1.5.1"),
            *COMMON,
        ),
        "rocketmq-client-java-5.0.3.jar",  # the tools bring the same classes in another form
    ),
    "remoting": Suite(
        "java/e2e-v4",
        "remoting client",
        "4.9.3",
        (*(("org.apache.rocketmq", f"rocketmq-{name}", "4.9.3") for name in ("client", "acl", "tools")), *COMMON),
    ),
}
SUITE_S = 2400  # then a suite is ended
HEAD = """# The Java cases of rocketmq-e2e

Written by `make e2e-tests`: the cases of {ref} against a box with `grpc.port`. The cases are unchanged; only Lombok is
newer, for today's Java. They run side by side; what fails runs again, one after the other, since a client on a busy
machine may miss the time that a case allows.
"""
AGAIN = "it expects that acknowledged messages of an ordered queue come again behind one that was not"
REASONS = {
    "testDelayTime24hAfter": "it expects that a delay of more than a day is refused; a box takes three, as for "
    "remoting clients",
    "testFIFO_simple_receive_multi_nack": AGAIN,
    "test_waitAckException_reReceive_ack": "it looks for `INVALID_RECEIPT_HANDLE` in the text of the client's "
    "exception, which has the number of that code, 40013, and `receipt handle is expired`, as Apache's proxy says",
}


class Case(NamedTuple):
    """What became of a case, and its name for a second run."""

    verdict: Verdict
    method: str


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, help="a clone of github.com/apache/rocketmq-e2e, or its git folder")
    parser.add_argument("--ref", default=COMMIT, help=f"commit ({COMMIT[:10]})")
    parser.add_argument(
        "--clients", nargs="+", choices=SUITES, default=list(SUITES), help="without all no page is written"
    )
    parser.add_argument("--only", help="a package, or Class#method; then no page is written")
    parser.add_argument("--report", type=Path, help="write the page there")
    options = parser.parse_args()
    shutil.rmtree(BUILD, ignore_errors=True)
    parts, ran = [], []
    for name in options.clients:
        found, again = tested(SUITES[name], BUILD / name, options.sources, options.ref, options.only)
        parts.append(section(SUITES[name], found, again))
        ran.append(found)
    print("\n".join(parts))
    if options.report and not options.only and set(options.clients) == set(SUITES):
        options.report.write_text("\n".join([HEAD.format(ref=options.ref[:10]), *parts]))
    return 0 if all(ran) else 1


def tested(suite: Suite, folder: Path, sources: Path, ref: str, only: str | None) -> tuple[list[Verdict], list[str]]:
    """Run the cases of a suite, and those that failed once more; return what became of them and who passed late."""
    folder.mkdir(parents=True)
    unpacked(sources, ref, suite.folder, folder)
    jar_folder, classes = fetched(f"e2e-tests-{suite.version}", suite.needed), folder / "classes"
    path = f"{classes}:{folder / suite.folder / 'src/test/resources'}:{jar_folder / suite.first}:{jar_folder}/*"
    build(path, folder / suite.folder / "src", classes)
    with boxes(1, folder) as told:
        first = run(path, folder / suite.folder, told, [only or str(classes)])
        failed = {case.method for case in first if case.verdict.verdict == "failed"}
        second = run(path, folder / suite.folder, told, sorted(failed), alone=True) if failed else []
    kept = merged(first, second)
    return kept, sorted({each.name for each in kept} & passed_late(first, second))


def build(path: str, source: Path, classes: Path) -> None:
    """Compile the cases and what runs them."""
    files = [str(file) for file in [*source.rglob("*.java"), *RUNNER.glob("*.java")]]
    classes.mkdir()
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(classes), *files], check=True)


def run(path: str, folder: Path, told: dict[str, str], names: list[str], *, alone: bool = False) -> list[Case]:
    """Run a folder of classes, packages or methods in a Java of their own, side by side or one after the other."""
    where = [f"-DnamesrvAddr={told['namesrv']}", f"-DendPoint=127.0.0.1:{told['grpcPort']}", f"-Duser.home={BUILD}"]
    where += ["-Djunit.jupiter.execution.parallel.enabled=false"] if alone else []
    command = [*jars.java_command(), *where, "-Xmx1g", "-cp", path, "RunCases", *names]
    with (BUILD / "java.err").open("ab") as errors:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    watchdog, found = Timer(SUITE_S, process.kill), []
    watchdog.start()
    for line in process.stdout:
        if line.startswith("RESULT\t"):
            _, suite, name, verdict, method, reason = line.rstrip("\n").split("\t", 5)
            found.append(Case(Verdict(suite, name, verdict, reason), method))
            print(f"{suite}.{name}: {verdict} {reason[:300]}", flush=True)
    watchdog.cancel()
    process.wait()
    return found


def merged(first: Iterable[Case], second: Iterable[Case]) -> list[Verdict]:
    """Return what became of each case at its last run, in order of the classes."""
    last = {case.method: case.verdict for case in [*first, *second]}
    return sorted(last.values())


def passed_late(first: Iterable[Case], second: Iterable[Case]) -> set[str]:
    """Return the names of cases that passed at their second run."""
    failed = {case.method for case in first if case.verdict.verdict == "failed"}
    return {case.verdict.name for case in second if case.verdict.verdict == "passed" and case.method in failed}


def section(suite: Suite, found: list[Verdict], again: list[str]) -> str:
    """Return a suite's part of the page."""
    listed = ", ".join(f"`{name}`" for name in again)
    late = fill(f"Passed when they ran again: {listed}." if again else "None ran again.", 118)
    failed = [each for each in found if each.verdict == "failed"]
    rows = ["| case that failed | reason |", "| --- | --- |"]
    rows += [f"| `{each.name}` | {REASONS.get(each.name, each.reason.replace('|', '/')[:300])} |" for each in failed]
    passed = count(found, "passed")
    head = f"Cases of `{suite.folder}`: {passed} of {passed + len(failed)} passed."
    title = f"## Java, {suite.client} {suite.version}"
    return "\n\n".join([title, head, late, table(found), "\n".join(rows) if failed else "None failed."]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
