"""A Debian release of its own with real systemd as PID 1, for what apt installs: made once, kept in .cache/debian."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.systemd.machine import TOP, Container

PACKAGES = ("systemd", "systemd-sysv", "dbus", "python3", "openssl", "ca-certificates")
CACHE = TOP / ".cache/debian"
NEWER = "0.9.1"  # than the version of the checkout


def reason_to_skip() -> str:
    """Return why no Debian can be made and booted here, empty when it can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in ("systemd-nspawn", "nsenter", "mmdebstrap", "dpkg-deb") if shutil.which(name) is None]
    return f"missing: {' '.join(missing)}" if missing else ""


needs_debian = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())


def build_packages(out: Path, *words: str) -> dict[str, Path]:
    """Compile the modules for every Debian, run make-deb.sh, return the packages by architecture."""
    script, made, kept = TOP / "systemd/compiled/libraries.sh", TOP / ".build/libraries", TOP / ".cache/compile"
    subprocess.run([str(script), str(made), sys.executable, str(kept)], cwd=TOP, check=True)
    done = subprocess.run(
        [TOP / "systemd/make-deb.sh", out, sys.executable, *words], cwd=TOP, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.stem.rpartition("_")[2]: path for path in out.glob("*.deb")}


def build_wheel(out: Path) -> Path:
    """Build the wheel, return it."""
    shutil.rmtree(out, ignore_errors=True)
    words = [sys.executable, "systemd/wheel/rocketbox_wheel.py", str(out)]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(words, cwd=TOP, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def debian_root(
    suite: str, target: Path, arch: str = "amd64", *, packages: tuple[str, ...] = PACKAGES, more: tuple[str, ...] = ()
) -> Path:
    """Unpack a minimal Debian with what the package depends on, and more; the first time it is fetched."""
    wanted = (*packages, *more)
    key = hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:8]
    kept = CACHE / f"{suite}-{arch}-{key}.tar"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_suffix(".new.tar")
        variant = "minbase" if arch == "amd64" else "extract"  # what is foreign cannot be set up without an emulator
        words = ["mmdebstrap", "--quiet", f"--variant={variant}", f"--architectures={arch}"]
        words += [f"--include={','.join(wanted)}", "--dpkgopt=path-exclude=/usr/share/doc/*"]
        words += ["--dpkgopt=path-include=/usr/share/doc/rocketbox/*", suite, str(fresh)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no Debian {suite} for {arch} to be had: {done.stderr.strip()[-300:]}")
        fresh.rename(kept)
    target.mkdir(parents=True)
    subprocess.run(["tar", "-C", target, "-xf", kept, "--exclude=./dev/*"], check=True)
    return target


class Debian(Container):
    """A booted Debian below `folder/root`; /shared inside is `folder/shared`."""

    def __init__(self, folder: Path, suite: str, more: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self.root, self.shared = debian_root(suite, folder / "root", more=more), folder / "shared"
        self.shared.mkdir()

    def where(self) -> list[str]:
        return ["-D", str(self.root), f"--bind={self.shared}:/shared"]

    def done(self, *words: str) -> str:
        """Run a command inside that must succeed, return what it printed."""
        found = self.run(*words)
        assert found.returncode == 0, f"{' '.join(words)}: {found.returncode}\n{found.stdout}{found.stderr}"
        return found.stdout + found.stderr

    def apt(self, *words: str) -> str:
        """Run apt-get as a script does: no question can be answered."""
        return self.done("env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "apt-get", "-y", *words)

    def install(self, package: Path, *words: str) -> str:
        shutil.copy(package, self.shared)
        return self.apt("install", *words, f"/shared/{package.name}")
