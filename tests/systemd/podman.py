"""Podman for tests: its own storage and network, and its own mount namespace where control groups are of both kinds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
# Of a machine whose root may not raise limits, and whose /sys/fs/cgroup is of both kinds.
BARE = ("--cgroups=disabled", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
HELPERS = (Path("/usr/lib/podman"), Path("/usr/libexec/podman"), Path("/usr/local/libexec/podman"))
UNIFIED = "mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo ready && exec cat"


def reason_to_skip() -> str:
    """Return why no image can be built here, empty where one can."""
    programs = {"podman": "podman", "buildah": "buildah", "mmdebstrap": "mmdebstrap", "crun": "crun"}
    missing = [package for program, package in programs.items() if shutil.which(program) is None]
    return f"needs Debian packages: apt-get install {' '.join(missing)}" if missing else ""


def why_none_runs(said: str) -> str:
    """Return the last line of what Podman said, with the package that Debian's Podman 4.3 lacks."""
    reason = (said.strip().splitlines() or ["no reason given"])[-1]
    without = "netavark: No such file or directory" in reason and shutil.which("iptables") is None
    return f"{reason}: apt-get install iptables" if without else reason


class Podman:
    """Runs podman and buildah on one storage below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        conf = folder / "storage.conf"
        conf.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n')
        self.environ = {**os.environ, "CONTAINERS_STORAGE_CONF": str(conf)}
        self._space: subprocess.Popen[str] | None = None
        self.network = f"rocketbox-test-{os.getpid()}"
        self.extra: tuple[str, ...] = ()

    def find_a_way(self, image: str) -> str:
        """Choose how containers run here; return why they cannot, empty where they can."""
        done = self._try(image)
        if done.returncode and os.geteuid() == 0:
            words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", UNIFIED]
            self._space = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert self._space.stdout is not None
            if self._space.stdout.readline() == "ready\n":
                self.extra = BARE
                done = self._try(image)
        if done.returncode == 0:
            self("network", "create", "--disable-dns", self.network)  # the default one may belong to another storage
        return why_none_runs(done.stderr) if done.returncode else ""

    def reason_without_names(self) -> str:
        """Return what this machine lacks for containers to find one another by name, empty where it has all."""
        backend = self("info", "--format", "{{.Host.NetworkBackend}}").stdout.strip()
        if backend == "netavark":
            there = any((folder / "aardvark-dns").exists() for folder in HELPERS)
            return "" if there else "netavark has no aardvark-dns: apt-get install aardvark-dns"
        there = Path("/usr/lib/cni/dnsname").exists() and shutil.which("dnsmasq") is not None
        return "" if there else f"{backend} has no plugin dnsname: apt-get install netavark aardvark-dns"

    def _try(self, image: str) -> subprocess.CompletedProcess[str]:
        return self("run", "--rm", *self.extra, "--read-only", image, "--version", check=False)

    def words(self, program: str = "podman") -> list[str]:
        inside = ["nsenter", "-t", str(self._space.pid), "-m", "--"] if self._space else []
        return [*inside, program]

    def __call__(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        words = [*self.words(), *arguments]
        done = subprocess.run(words, env=self.environ, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0 or not check, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    def box(self, name: str, image: str, *options: str) -> None:
        """Start a box as docs/installing.md says."""
        safe = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges")
        volume = f"{name}:/var/lib/rocketbox"
        self("run", "-d", "--name", name, "--network", self.network, *self.extra, *safe, "-v", volume, *options, image)

    def health(self, name: str) -> str:
        """Run the health check once, as Podman does on its timer; return what `podman ps` then shows."""
        self("healthcheck", "run", name, check=False)
        return str(self.inspect(name)["State"]["Health"]["Status"])

    def inspect(self, name: str) -> Any:
        return json.loads(self("inspect", name).stdout)[0]

    def wait(self, true: Callable[[], bool], name: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, self("logs", name, check=False)
            time.sleep(0.1)

    def wait_ready(self, name: str, times: int = 1) -> None:
        """Wait until the box has said so many times that it serves."""
        self.wait(lambda: self("logs", name).stdout.count("ready namesrv=") >= times, name)

    def close(self) -> None:
        """Remove every container and the storage."""
        self("rm", "-f", "-t", "0", "--all", check=False)
        self("network", "rm", "-f", self.network, check=False)
        self("volume", "rm", "-f", "--all", check=False)
        overlay = str(self.folder / "graph/overlay")  # a bind mount of buildah's, here and in the other namespace
        subprocess.run([*self.words("umount"), "-q", overlay], check=False)
        if self._space:
            subprocess.run(["umount", "-q", overlay], check=False)
            assert self._space.stdin is not None
            self._space.stdin.close()
            self._space.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)
