"""Source and jobs with each version of PySpark: makes an environment for each, fetches connectors, prints a table.

python tests/spark_versions/run.py [4.2 4.3 ...]     (make test-spark-versions; needs Maven, some GB and minutes)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILT = ROOT / ".build/spark-versions"
NEEDS = ("pyarrow>=18", "numpy>=2", "pandas>=2.2,<3", "deltalake>=1.6.6,<2", "cbor2", "zstandard", "trio", "psutil")
DELTA = "4.4.0"
VERSIONS: dict[str, list[str]] = {  # PySpark -> its connectors
    "4.0": [
        f"io.delta:delta-spark_4.0_2.13:{DELTA}",
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    ],
    "4.1": [f"io.delta:delta-spark_4.1_2.13:{DELTA}"],
    "4.2": [f"io.delta:delta-spark_4.2_2.13:{DELTA}"],
    "4.3": [],
}
KEPT = ("delta-", "iceberg-", "unitycatalog-", "RoaringBitmap", "shims")  # Spark has the others
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>rocketbox</groupId>
<artifactId>connector</artifactId><version>1</version><dependencies><dependency><groupId>{}</groupId>
<artifactId>{}</artifactId><version>{}</version></dependency></dependencies></project>"""


def environment(version: str) -> Path:
    """Return the interpreter with this PySpark."""
    python = BUILT / version / "bin/python"
    if not (BUILT / version / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(BUILT / version)], check=True)
        pip = [str(python), "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, f"pyspark=={version}.*", *NEEDS], check=True)
        if any("delta" in connector for connector in VERSIONS[version]):
            subprocess.run([*pip, "--no-deps", f"delta-spark=={DELTA}"], check=True)
        (BUILT / version / "ready").touch()
    return python


def jars(version: str) -> list[str]:
    """Return the connectors and what they need beside Spark."""
    found: list[str] = []
    for connector in VERSIONS[version]:
        folder = BUILT / "jars" / connector.replace(":", "-")
        if not folder.exists():
            pom = BUILT / "pom.xml"
            pom.write_text(POM.format(*connector.split(":")))
            leave = "-DexcludeGroupIds=org.apache.spark,org.scala-lang"
            command = [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(pom),
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
                leave,
            ]
            subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True)
        found += [str(jar) for jar in sorted(folder.iterdir()) if jar.name.startswith(KEPT)]
    return found


def checked(version: str) -> dict[str, str]:
    """Return what each check says."""
    python, found = environment(version), jars(version)
    with tempfile.TemporaryDirectory() as folder:
        one, around = str(Path(__file__).with_name("one.py")), os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, one, "--make", f"{folder}/made"], cwd=ROOT, env=around, check=True)
        around["PYSPARK_PYTHON"] = str(python)
        command = [str(python), one, folder, *found]
        done = subprocess.run(command, cwd=ROOT, env=around, capture_output=True, text=True, timeout=1800)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"pyspark": version, "error": (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]}
    result: dict[str, str] = json.loads(lines[-1])
    return result


def main() -> int:
    BUILT.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for version in sys.argv[1:] or VERSIONS:
        for name, told in checked(version).items():
            wrong += name != "pyspark" and not told.startswith(("ok", "filtered by Spark"))
            print(f"{version}  {name:20s} {told}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
