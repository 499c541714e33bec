"""The official Java client's jars, fetched once by Maven coordinates into .cache/ of the checkout."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / ".cache" / "java"
GROUP = "org.apache.rocketmq"
MINUTES_S = 300
QUIET = (f"-Djava.io.tmpdir={tempfile.gettempdir()}", "-XX:-UsePerfData")
# A test's Java lives for seconds: the second compiler and a parallel collector cost more than they give.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>rocketbox</groupId><artifactId>interop</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
</dependency></dependencies></project>
"""


class Unavailable(Exception):
    """A tool or a download is missing; the text names the cause and the command that would help."""


def java() -> str:
    """Return the path of a Java 17 or newer: the one set-up chose, JAVA_HOME's, or the one on PATH."""
    homes = [Path(sys.prefix) / "java", *([Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else [])]
    for path in [*(home / "bin" / "java" for home in homes), *(Path(p) for p in [shutil.which("java")] if p)]:
        if path.exists():
            return str(path)
    raise Unavailable("no Java here; it would come with: make setup")


def java_options() -> list[str]:
    """Return options of a Java that leaves nothing in /tmp; what a benchmark starts compiles as Java does."""
    return [*QUIET, *(SHORT_LIVED if "pytest" in sys.modules else ())]


def java_command() -> list[str]:
    """Return how to start a Java with these options. Raises Unavailable."""
    return [java(), *java_options()]


def spark_jar(name: str) -> Path:
    """Return the jar of that name among those that the pyspark wheel carries."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable("pyspark is not installed; it would come with: make setup")
    found = sorted((Path(spec.origin).parent / "jars").glob(f"{name}-*.jar"))
    if not found:
        raise Unavailable(f"the pyspark wheel carries no {name} jar")
    return found[0]


def fetch(version: str, artifact: str = "rocketmq-tools") -> list[Path]:
    """Return the jars of an artifact and all it needs; the tools bring the client. Raises Unavailable."""
    folder = CACHE / f"{artifact}-{version}"
    with alone():
        _fetch_once(folder, artifact, version)
    return sorted(folder.glob("*.jar"))


@contextmanager
def alone(tool: str = "java") -> Iterator[None]:
    """Keep other workers of the same run waiting that want the same tool: what it fetches and builds is shared."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"lock-{tool}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_once(folder: Path, artifact: str, version: str) -> None:
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        failures = [text for text in (_by_maven(folder, artifact, version), _by_ivy(folder, artifact, version)) if text]
        if not list(folder.glob(f"{artifact}-{version}.jar")):
            raise Unavailable(
                f"{GROUP}:{artifact}:{version} could not be fetched ({'; '.join(failures)}); "
                "a Maven repository must be reachable; apt-get install maven reads ~/.m2/settings.xml for a mirror"
            )
        (folder / ".complete").touch()


def _run(tool: str, command: list[str], cwd: Path) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=MINUTES_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{tool}: {error}"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return f"{tool}: exit {done.returncode}, {lines[-1] if lines else 'no output'}" if done.returncode else ""


def _by_maven(folder: Path, artifact: str, version: str) -> str:
    if shutil.which("mvn") is None:
        return "mvn: not installed"
    (folder / "pom.xml").write_text(POM.format(group=GROUP, artifact=artifact, version=version))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", f"-Dmaven.repo.local={CACHE / 'repository'}"]
    return _run("mvn", ["mvn", "-q", "-B", *goal], folder)


def _by_ivy(folder: Path, artifact: str, version: str) -> str:
    """Resolve as Spark's --packages would, with its wheel's resolver. Nothing to do after Maven did it."""
    if list(folder.glob(f"{artifact}-{version}.jar")):
        return ""
    asked = [
        "-m2compatible",
        "-confs",
        "default",
        "-cache",
        str(CACHE / "ivy"),
        "-dependency",
        GROUP,
        artifact,
        version,
    ]
    place = ["-retrieve", str(folder / "[artifact]-[revision](-[classifier]).[ext]")]
    return _run("ivy", [*java_command(), "-jar", str(spark_jar("ivy")), *asked, *place], folder)
