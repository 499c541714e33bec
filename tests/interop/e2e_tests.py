"""The Java cases of rocketmq-e2e for the gRPC client, run against a box; writes docs/e2e-tests.md.

    make e2e-tests SOURCES=…/rocketmq-e2e      a clone of github.com/apache/rocketmq-e2e; REF=… another commit

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
from typing import NamedTuple

from tests.interop import jars
from tests.interop.apache_sources import fetched, unpacked
from tests.interop.apache_tests import ROOT, boxes
from tests.interop.verdicts import Verdict, table

RUNNER, BUILD, REPORT = Path(__file__).parent / "e2e", ROOT / ".build" / "e2e-tests", ROOT / "docs" / "e2e-tests.md"
COMMIT, CLIENT, PACKAGE = "7811611ec0954799ba1dc4286a64d86acc7378bc", "5.0.3", "org.apache.rocketmq.broker"
LOMBOK = "1.18.36"  # that of the cases knows no Java after 15
JUPITER, LAUNCHER = "5.7.2", "1.7.2"
NEEDED = (
    *(("org.apache.rocketmq", *row) for row in (("rocketmq-client-java", CLIENT), ("rocketmq-tools", "5.0.0"))),
    *(("org.apache.rocketmq", "rocketmq-acl", "5.0.0"), ("org.projectlombok", "lombok", LOMBOK)),
    *(("com.squareup.okhttp", "okhttp", "2.7.5"), ("com.alibaba", "dns-cache-manipulator", "1.5.1")),
    *(("org.awaitility", "awaitility", "4.0.3"), ("org.junit.platform", "junit-platform-launcher", LAUNCHER)),
    *(("org.junit.jupiter", f"junit-jupiter-{part}", JUPITER) for part in ("api", "engine", "params")),
    *(("ch.qos.logback", f"logback-{part}", "1.3.0-beta0") for part in ("classic", "core")),
    ("org.slf4j", "slf4j-api", "2.0.0-beta1"),
)
MINUTES_S = 2400
HEAD = """# The Java cases of rocketmq-e2e

Written by `make e2e-tests`: the cases of `java/e2e` at {ref}, gRPC client {client}, against one box with
`grpc.port`. The cases are unchanged; only Lombok is newer, for today's Java. They run side by side; what fails runs
again, one after the other, since a client on a busy machine may miss the time that a case allows.
{again}

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
    parser.add_argument("--only", default=PACKAGE, help=f"a package, or Class#method ({PACKAGE})")
    parser.add_argument("--report", type=Path, help="write the table there")
    options = parser.parse_args()
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    unpacked(options.sources, options.ref, "java/e2e", BUILD)
    jar_folder = fetched(f"e2e-tests-{CLIENT}", NEEDED)
    first = jar_folder / f"rocketmq-client-java-{CLIENT}.jar"  # the tools bring the same classes in another form
    path = f"{BUILD / 'classes'}:{BUILD / 'java/e2e/src/test/resources'}:{first}:{jar_folder}/*"
    build(path)
    with boxes(1, BUILD) as told:
        found = run(path, told, [options.only])
        failed = {case.method for case in found if case.verdict.verdict == "failed"}
        second = run(path, told, sorted(failed), alone=True) if failed else []
    kept = merged(found, second)
    again = sorted({each.name for each in kept} & passed_late(found, second))
    print(table(kept))
    if options.report:
        options.report.write_text(report(kept, again, options.ref))
    return 0 if kept else 1


def build(path: str) -> None:
    """Compile the cases and what runs them."""
    files = [str(file) for file in [*(BUILD / "java/e2e/src").rglob("*.java"), *RUNNER.glob("*.java")]]
    (BUILD / "classes").mkdir()
    command = ["javac", "-nowarn", "-cp", path, "-d", str(BUILD / "classes"), *files]
    subprocess.run(command, check=True)


def run(path: str, told: dict[str, str], names: list[str], *, alone: bool = False) -> list[Case]:
    """Run packages or methods in a Java of their own, side by side as the cases ask for, or one after the other."""
    where = [f"-DnamesrvAddr={told['namesrv']}", f"-DendPoint=127.0.0.1:{told['grpcPort']}", f"-Duser.home={BUILD}"]
    where += ["-Djunit.jupiter.execution.parallel.enabled=false"] if alone else []
    command = [*jars.java_command(), *where, "-Xmx1g", "-cp", path, "RunCases", *names]
    with (BUILD / "java.err").open("ab") as errors:
        process = subprocess.Popen(command, cwd=BUILD / "java/e2e", stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        if line.startswith("RESULT\t"):
            _, suite, name, verdict, method, reason = line.rstrip("\n").split("\t", 5)
            found.append(Case(Verdict(suite, name, verdict, reason), method))
            print(f"{suite}.{name}: {verdict} {reason[:300]}", flush=True)
    process.wait(MINUTES_S)
    return found


def merged(first: Iterable[Case], second: Iterable[Case]) -> list[Verdict]:
    """Return what became of each case at its last run, in order of the classes."""
    last = {case.method: case.verdict for case in [*first, *second]}
    return sorted(last.values())


def passed_late(first: Iterable[Case], second: Iterable[Case]) -> set[str]:
    """Return the names of cases that passed at their second run."""
    failed = {case.method for case in first if case.verdict.verdict == "failed"}
    return {case.verdict.name for case in second if case.verdict.verdict == "passed" and case.method in failed}


def report(found: list[Verdict], again: list[str], ref: str) -> str:
    """Return the page."""
    listed = ", ".join(f"`{name}`" for name in again)
    text = fill(f"Passed when they ran again: {listed}." if again else "None ran again.", 118)
    failed = [each for each in found if each.verdict == "failed"]
    rows = ["| case that failed | reason |", "| --- | --- |"]
    rows += [f"| `{each.name}` | {REASONS.get(each.name, each.reason.replace('|', '/')[:300])} |" for each in failed]
    passed = sum(each.verdict == "passed" for each in found)
    count = f"{passed} of {passed + len(failed)} passed."
    head = HEAD.format(ref=ref[:10], client=CLIENT, again=text)
    return "\n".join([head + count, "", table(found), "", *(rows if failed else ["None failed."]), ""])


if __name__ == "__main__":
    sys.exit(main())
