"""Apache's own integration tests of POP and of its proxy, run against boxes; writes docs/apache-tests.md.

    make apache-tests SOURCES=…/rocketmq      a clone of github.com/apache/rocketmq; REF=… another commit

The tests start their brokers in their own process. Here the classes that do so are replaced by those of
tests/interop/apache/, which name boxes that run already. EDITS are all other changes.
"""

import argparse
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from tests.interop import jars
from tests.interop.box import Box
from tests.interop.served import QUICK
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SHIMS, BUILD, REPORT = (
    Path(__file__).parent / "apache",
    ROOT / ".build" / "apache-tests",
    ROOT / "docs" / "apache-tests.md",
)
COMMIT, VERSION = "8fc57f1468d182eea11c01e089c0250d647dc5f3", "5.5.0"
PACKAGE = "org.apache.rocketmq.test."
POP = [
    *(f"client.consumer.pop.{name}" for name in ("NotificationIT", "PopMessageAndForwardingIT", "PopBigMessageIT")),
    *(f"client.consumer.pop.{name}" for name in ("BatchAckIT", "PopOrderlyIT", "PopSubCheckIT")),
    *("retry.PopConsumerRetryIT", "offset.OffsetResetForPopIT", "recall.SendAndRecallDelayMessageIT"),
]
PROXY = ["grpc.v2.RemoteGrpcIT"]
EDITS = [
    ("retry/PopConsumerRetryIT.java", "org.apache.rocketmq.test.offset.OffsetResetIT", f"{PACKAGE}base.BaseConf"),
    ("retry/PopConsumerRetryIT.java", "OffsetResetIT.class", "BaseConf.class"),
    ("grpc/v2/GrpcBaseIT.java", "intConfig()", "initConfig()"),  # as 5.5.0 spells it
    ("grpc/v2/GrpcBaseIT.java", "private int port", "protected int port"),
    ("grpc/v2/GrpcBaseIT.java", "Encoding.GZIP", "Encoding.IDENTITY"),  # the bodies are plain
]
NEEDED = [
    *(("org.apache.rocketmq", name, VERSION) for name in ("rocketmq-proxy", "rocketmq-tools")),
    *(("junit", "junit", "4.13.2"), ("com.google.truth", "truth", "0.30"), ("org.awaitility", "awaitility", "4.1.0")),
    *(("org.assertj", "assertj-core", "3.22.0"), ("io.grpc", "grpc-testing", "1.53.0")),
]
LEAST = "min_invisible_ms = 3\nmin_poll_ms = 0\n"  # as GrpcBaseIT sets its proxy
MINUTES_S = 1200
HEAD = """# Apache's tests of POP and of its proxy

Written by `make apache-tests`: {where}. The tests of POP run
against three boxes that share a NameServer, those of the proxy (`GrpcBaseIT`) against one with the times that they set.
The classes that would start brokers are replaced (`tests/interop/apache/`); all other changes are `EDITS` in
`tests/interop/apache_tests.py`. What Apache's other tests say of a box is in [limits](limits.md), what `rocketmq-e2e`
says in [e2e-tests](e2e-tests.md).
`PopPriorityIT` is left out, since a box has no priorities, and so are the classes that start a proxy of their own
(`LocalGrpcIT`, `ClusterGrpcIT`): their tests are those of `GrpcBaseIT`.
"""
AGAIN = "it expects that acknowledged messages of an ordered queue come again behind one that was not"
REASONS = {
    "PopOrderlyIT.testPopMessageOrderlyThenChangeInvisibleTimeMidMessage": AGAIN,
}


class Verdict(NamedTuple):
    """What became of one test."""

    suite: str
    name: str
    verdict: str
    reason: str


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, help="a clone of github.com/apache/rocketmq, or its git folder")
    parser.add_argument("--ref", default=COMMIT, help=f"commit ({COMMIT[:10]})")
    parser.add_argument("--only", default="", help="a part of the names of classes")
    parser.add_argument("--report", type=Path, help="write the table there")
    options = parser.parse_args()
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    unpack(options.sources, options.ref)
    path = f"{fetch(f'apache-tests-{VERSION}', NEEDED)}/*:{BUILD / 'classes'}:{BUILD / 'test/src/test/resources'}"
    build(path)
    found: list[Verdict] = []
    for count, names in ((3, POP), (1, PROXY)):
        names = [name for name in names if options.only in name]
        if names:
            with boxes(count, BUILD, LEAST) as properties:
                found += run(path, properties, names)
    print(table(found))
    if options.report:
        options.report.write_text(report(found, options.ref))
    return 0 if found else 1


def unpack(sources: Path, ref: str) -> None:
    """Put the sources of the tests into BUILD, with the edits."""
    unpacked(sources, ref, "test/src", BUILD)
    for name, old, new in EDITS:
        file = BUILD / "test/src/test/java/org/apache/rocketmq/test" / name
        file.write_text(file.read_text().replace(old, new))


def unpacked(sources: Path, ref: str, path: str, into: Path) -> None:
    """Put a folder of a commit into another folder."""
    packed = subprocess.run(["git", "-C", str(sources), "archive", ref, path], check=True, capture_output=True)
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(into, filter="data")


def fetch(name: str, needed: list[tuple[str, str, str]]) -> Path:
    """Return the folder of the jars, fetched once by Maven."""
    folder = jars.CACHE / name
    with jars.alone():
        if not (folder / ".complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            rows = "".join(
                f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
                f"<version>{version}</version></dependency>"
                for group, name, version in needed
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


def build(path: str) -> None:
    """Compile the tests and what they need."""
    tree = BUILD / "test/src"
    classes = BUILD / "classes"
    classes.mkdir()
    places = [tree / "test/java", SHIMS]
    wanted = [*POP, *PROXY, "RunTests"]
    files = [
        str(file)
        for name in wanted
        for place in places
        if (file := place / f"{(PACKAGE + name).replace('.', '/')}.java").exists()
    ]
    found = f"{SHIMS}:{tree / 'main/java'}:{tree / 'test/java'}"
    command = ["javac", "-nowarn", "-proc:none", "-cp", path, "-sourcepath", found, "-d", str(classes), *files]
    subprocess.run(command, check=True)


@contextmanager
def boxes(count: int, folder: Path, grpc: str = "") -> Iterator[dict[str, str]]:
    """Run boxes that share the first one's NameServer; yields what tests are told of them."""
    with ExitStack() as stack:
        started: list[Box] = []
        port = free_port()
        for number in range(1, count + 1):
            config = f"[box]\nname = 'box{number}'\n" + QUICK
            config += (
                f"[namesrv]\nregister_at = ['{started[0].namesrv}']\n" if started else f"[grpc]\nport = {port}\n{grpc}"
            )
            box = Box(folder / f"{count}-{number}", config=config)
            box.start()
            stack.callback(box.stop)
            started.append(box)
        named = ",".join(f"box{number}={box.broker}" for number, box in enumerate(started, 1))
        first = started[0].namesrv
        told = {"namesrv": first, "cluster": "DefaultCluster", "brokers": named, "grpcPort": str(port)}
        yield {**told, "rocketmq.namesrv.addr": first}  # for clients that a test gives no address


def run(path: str, properties: dict[str, str], names: list[str]) -> list[Verdict]:
    """Run test classes in a Java of their own."""
    told = [f"-D{name}={value}" for name, value in properties.items()]
    opened = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"]
    command = [*jars.java_command(), *opened, *told, f"-Duser.home={BUILD}", "-Xmx512m", "-cp", path]
    command += [f"{PACKAGE}RunTests", *(PACKAGE + name for name in names)]
    with (BUILD / "java.err").open("ab") as errors:
        process = subprocess.Popen(command, cwd=BUILD, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        if line.startswith("RESULT\t"):
            _, suite, name, verdict, reason = line.rstrip("\n").split("\t", 4)
            found.append(Verdict(suite, name, verdict, reason))
            print(f"{suite}.{name}: {verdict} {reason[:300]}", flush=True)
    process.wait(MINUTES_S)
    return found


def table(found: list[Verdict]) -> str:
    """Return how many tests of each class passed."""
    lines = ["| class | passed | failed | left out by Apache |", "| --- | --- | --- | --- |"]
    for suite in dict.fromkeys(each.suite for each in found):
        verdicts = [each.verdict for each in found if each.suite == suite]
        lines.append(
            f"| {suite} | {verdicts.count('passed')} | {verdicts.count('failed')} | {verdicts.count('ignored')} |"
        )
    return "\n".join(lines)


def report(found: list[Verdict], ref: str) -> str:
    """Return the page."""
    where = f"Apache's tree at {ref[:10]}, client and test libraries {VERSION}"
    failed = [f"| {each.suite}.{each.name} | {reason_of(each)} |" for each in found if each.verdict == "failed"]
    rows = ["| test that failed | reason |", "| --- | --- |", *failed]
    return "\n".join([HEAD.format(where=where), table(found), "", *(rows if failed else ["None failed."]), ""])


def reason_of(each: Verdict) -> str:
    """Return why a test failed, in our words where it is known."""
    known = REASONS.get(f"{each.suite}.{each.name}")
    known = known or next((text for part, text in REASONS.items() if part in each.reason), None)
    return known or each.reason.replace("|", "/")[:300]


if __name__ == "__main__":
    sys.exit(main())
