"""A gateway as a process whose landing zone is a file system of its own, which the test fills or turns read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.import_path import import_path
from tests.ports import free_port

TOP = Path(__file__).parents[2]
OWN = ["unshare", "--user", "--map-root-user", "--mount"]  # root over mounts of its own, no privilege is needed
ALLOWED = shutil.which("unshare") and not subprocess.run([*OWN, "true"], capture_output=True, check=False).returncode
NO_MOUNTS = "no user namespaces: sysctl kernel.unprivileged_userns_clone=1"


class SmallDisk:
    """A gateway whose landing zone is a file system of its own."""

    def __init__(self, landing: Path, size: str) -> None:
        landing.mkdir()
        self._landing, self.port, self.metrics = landing, free_port(), ("127.0.0.1", free_port())
        mounted = ["sh", "-c", 'mount -t tmpfs -o "$0" tmpfs "$1" && shift && exec "$@"', f"size={size}", str(landing)]
        command = [sys.executable, "-m", "uplink_spark", "gateway", "--landing", str(landing), "--linger-ms", "20"]
        where = ["--listen", f"127.0.0.1:{self.port}", "--metrics", f"127.0.0.1:{self.metrics[1]}"]
        env = os.environ | {"PYTHONPATH": import_path()}
        words = [*OWN, *mounted, *command, *where]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=TOP, env=env)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready listen=")

    @property
    def seen(self) -> Path:
        """The landing zone, as the gateway sees it."""
        return Path(f"/proc/{self.process.pid}/root{self._landing}")

    def _inside(self, *command: str) -> None:
        inside = ["nsenter", "--target", str(self.process.pid), "--user", "--mount", "--preserve-credentials"]
        subprocess.run([*inside, *command], check=True)

    def grow(self, size: str) -> None:
        self._inside("mount", "-o", f"remount,size={size}", str(self._landing))

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Where packs go; the kernel refuses it for a file system with files open for writing."""
        packs = str(self._landing / "pack")
        self._inside("mount", "--bind", packs, packs)
        self._inside("mount", "-o", "remount,bind,ro", packs)
        yield
        self._inside("umount", packs)

    @contextmanager
    def covered(self) -> Iterator[None]:
        """Another file system is mounted where the landing zone is."""
        self._inside("mount", "-t", "tmpfs", "tmpfs", str(self._landing))
        yield
        self._inside("umount", str(self._landing))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
