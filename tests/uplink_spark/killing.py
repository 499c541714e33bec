"""Real processes of a box and a gateway, killed and started again, and the comparison of what landed with the log."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.import_path import import_path
from tests.ports import free_port
from uplink_spark.testing import landed_entries, landed_log

TOP = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
COUNT = 4000


class Site:
    """One box, one gateway, their folders; every process is ended at the end."""

    def __init__(self, folder: Path, zone: str = "") -> None:
        self.folder, self.port = folder, free_port()
        self.landing, self.store = folder / "landing", folder / "store"
        self.zone = zone or str(self.landing)  # a URL where it is in a bucket
        self._all: list[subprocess.Popen[str]] = []

    def _start(self, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": import_path()} | environment,
            cwd=TOP,
        )
        self._all.append(process)
        return process

    def gateway(
        self, stop_at: str = "", port: int = 0, more: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[str]:
        where = [
            "--landing",
            self.zone,
            "--listen",
            f"127.0.0.1:{port or self.port}",
            "--linger-ms",
            "20",
            *more,
        ]
        program = str(PROGRAMS / "gateway.py")
        process = self._start([program, "gateway", *where], {"UPLINK_STOP_AT": stop_at} | environment)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready listen=")
        return process

    def box(
        self, stop_at: str = "", *, kill_at: str = "", count: int = COUNT, **options: int | str
    ) -> subprocess.Popen[str]:
        more = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        arguments = [str(PROGRAMS / "box.py"), str(self.store), str(self.port), str(count), *more]
        return self._start(arguments, {"UPLINK_STOP_AT": stop_at, "KILL_AT": kill_at})

    def end(self) -> None:
        for process in self._all:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def epochs(self) -> list[int]:
        """The epochs of the box at the centre, in the order in which they came."""
        return list(dict.fromkeys(entry.epoch for entry in landed_entries(self.landing, "box-17")))

    def check(self, count: int = COUNT) -> None:
        """Every record of the log on the box's disk landed once, its bytes equal."""
        records = landed_log(self.landing, "box-17")
        self.compare(records)
        assert sorted(record[88:568] for record in records.values()) == [f"{n:08d}".encode() * 60 for n in range(count)]

    def compare(self, records: dict[int, bytes]) -> None:
        """Each record is on the box's disk as it landed."""
        files = {int(f.name): f.read_bytes() for f in (self.store / "commitlog").iterdir() if f.name.isdigit()}
        base = sorted(files)
        for at, record in records.items():
            start = max((b for b in base if b <= at), default=None)
            assert start is not None, f"the box no longer has {at}, its log begins at {base[0]}"
            assert files[start][at - start : at - start + len(record)] == record


def said(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """The next line of a process, empty when none comes in time."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline().strip() if ready else ""


def killed(process: subprocess.Popen[str], seconds: float = 60) -> bool:
    """Whether the process died of SIGKILL at its step."""
    return process.wait(seconds) == -signal.SIGKILL


def wait_done(process: subprocess.Popen[str], seconds: float = 90) -> None:
    out, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0
    assert out.startswith("done")
