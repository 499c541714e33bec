"""proto_modules.py: makes netstack/grpc/v2/*_pb2.py from the proto files there, with the compiler of grpcio-tools.

For the build alone: a box has the made modules, never the compiler. Modules newer than their sources stay as they are.
"""

from __future__ import annotations

import importlib.resources
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "netstack" / "grpc" / "v2"
VIRTUAL = "apache/rocketmq/v2"  # the name of the folder inside the files, which stays in the descriptors
NAMES = ("definition", "service")
MISSING = "proto_modules: no grpcio-tools in {}: make setup, or pip install grpcio-tools; they make {}"


def made(folder: Path = FOLDER) -> list[Path]:
    """Return the modules that the proto files of a folder give."""
    return [folder / f"{name}_pb2.py" for name in NAMES]


def is_fresh(folder: Path = FOLDER) -> bool:
    """Tell whether every module is there and none is older than a source or this script."""
    sources = [folder / f"{name}.proto" for name in NAMES] + [Path(__file__)]
    newest = max(path.stat().st_mtime_ns for path in sources)
    return all(path.exists() and path.stat().st_mtime_ns >= newest for path in made(folder))


def make(folder: Path = FOLDER) -> None:
    """Write the modules. Raises SystemExit when the compiler is missing or refuses a file."""
    try:
        known = importlib.resources.files("grpc_tools") / "_proto"
    except ModuleNotFoundError:
        sys.exit(MISSING.format(sys.executable, ", ".join(path.name for path in made(folder))))
    with tempfile.TemporaryDirectory() as out:
        words = [f"--proto_path={VIRTUAL}={folder}", f"--proto_path={known}", f"--python_out={out}"]
        sources = [f"{VIRTUAL}/{name}.proto" for name in NAMES]
        done = subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words, *sources], check=False)
        if done.returncode:
            sys.exit(f"proto_modules: the compiler ended with {done.returncode}")
        for path in made(folder):
            text = Path(out, VIRTUAL, path.name).read_text()
            ours = text.replace("from apache.rocketmq.v2 import", "from netstack.grpc.v2 import")
            half_written = path.with_suffix(f".{os.getpid()}")
            half_written.write_text(ours)
            half_written.replace(path)


if __name__ == "__main__":
    if not is_fresh():
        make()
