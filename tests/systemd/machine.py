"""A machine with real systemd as PID 1: this computer's own /usr in a container, with the product installed over it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BOOT_S = 40.0
REBOOTED = 133  # systemd-nspawn ends with this when the machine inside reboots, because of --keep-unit


def reason_to_skip() -> str:
    """Return why real systemd cannot run here, empty when it can."""
    for program in ("systemd-nspawn", "nsenter", "systemd-analyze"):
        if shutil.which(program) is None:
            return f"{program} is missing: apt-get install systemd-container"
    if os.geteuid() != 0:
        return "needs root"
    if not Path("/usr/bin/python3").exists():
        return "needs the system's /usr/bin/python3"
    words = ["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    theirs = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return "" if theirs == ours else f"the libraries here are for Python {ours}, the system has {theirs}"


needs_systemd = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())


def build_slot(target: Path, version: str = "1.0.0") -> Path:
    """Build the product once as it lies in a slot."""
    words = ["-m", "provisioning.packaging.app_tree", str(target), "--version", version]
    subprocess.run([sys.executable, *words], cwd=TOP, check=True, capture_output=True)
    from provisioning.slots import add_interpreter

    add_interpreter(target)
    return target


class Container:
    """A root with systemd as PID 1, started by systemd-nspawn; its console goes to a file in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._container: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self.boots = 0

    def where(self) -> list[str]:
        """Return nspawn's words for the root and what is mounted over it."""
        raise NotImplementedError

    def network(self) -> list[str]:
        """Return nspawn's words for the network: one of its own, without a cable."""
        return ["--private-network"]

    def start(self) -> float:
        """Boot, return the seconds until systemd answers."""
        began = time.monotonic()
        words = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe"]
        words += [*self.network(), *self.where()]
        with (self.folder / "console.log").open("ab") as log:
            self._container = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,
            )
        self.boots += 1
        self._wait(self._answers, "systemd in the machine")
        return time.monotonic() - began

    def _answers(self) -> bool:
        """Tell whether PID 1 inside answers; nspawn's first child is not yet it, so it is looked for each time."""
        return self._find_leader() and self.run("systemctl", "show", "-p", "Version").returncode == 0

    def _find_leader(self) -> bool:
        assert self._container is not None
        if self._container.poll() is not None:
            raise AssertionError(f"nspawn ended with {self._container.returncode}: {self.console()[-2000:]}")
        children = Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children").read_text().split()
        self._leader = int(children[0]) if children else 0
        return bool(children)

    def _wait(self, true: object, what: str, seconds: float = BOOT_S) -> None:
        deadline = time.monotonic() + seconds
        while not true():  # type: ignore[operator]
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{what}: not within {seconds} s\n{self.journal()[-4000:]}\n{self.console()[-1500:]}"
                )
            time.sleep(0.05)

    def wait_for(self, unit: str, state: str = "active", seconds: float = BOOT_S) -> None:
        """Wait until a unit has reached a state."""
        self._wait(lambda: self.show(unit, "ActiveState") == state, f"{unit} {state}", seconds)

    def wait_until(self, true: object, what: str, seconds: float = BOOT_S) -> None:
        self._wait(true, what, seconds)

    def run(self, *words: str, space: str = "-a") -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        return subprocess.run(
            ["nsenter", "-t", str(self._leader), space, "--", *words], capture_output=True, text=True, check=False
        )

    def client(self, *words: str) -> subprocess.Popen[str]:
        """Start a client of this checkout inside the machine's network."""
        return subprocess.Popen(
            [
                "nsenter",
                "-t",
                str(self._leader),
                "-n",
                "--",
                sys.executable,
                str(TOP / "tests/systemd/client.py"),
                *words,
            ],
            cwd=TOP,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def outside(self, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of this checkout in the machine's network, with a home of its own."""
        return subprocess.run(
            ["nsenter", "-t", str(self._leader), "-n", "--", *words],
            cwd=TOP,
            env={**os.environ, "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def show(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()

    def main_pid(self) -> int:
        return int(self.show("rocketbox.service", "MainPID") or 0)

    def kill(self, name: str = "KILL") -> None:
        self.run("systemctl", "kill", "--kill-who=main", f"--signal={name}", "rocketbox.service")

    def journal(self, unit: str = "rocketbox*") -> str:
        return self.run("journalctl", "--no-pager", "-o", "short-monotonic", "-u", unit).stdout if self._leader else ""

    def console(self) -> str:
        return (self.folder / "console.log").read_text(errors="replace")

    def health(self) -> dict[str, object]:
        found = self.run("cat", "/run/rocketbox/health.json").stdout
        return dict(json.loads(found)) if found else {}

    def wait_reboot(self, seconds: float = 60.0) -> None:
        """Wait until the machine has ended by itself, then boot it again."""
        assert self._container is not None
        assert self._container.wait(seconds) == REBOOTED, self.console()[-2000:]
        self.start()

    def cut_power(self) -> None:
        """End everything inside at once; what the kernel had not written stays, unlike on a real disk."""
        assert self._container is not None
        os.kill(self._leader, signal.SIGKILL)
        self._container.wait(60)

    def stop(self) -> None:
        """Shut down; kill what is left."""
        if self._container is None or self._container.poll() is not None:
            return
        try:
            os.kill(self._leader, signal.SIGRTMIN + 4)
            self._container.wait(20)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            os.kill(self._leader, signal.SIGKILL)
            self._container.wait(60)


class Machine(Container):
    """One box under `folder`: /opt, /etc/rocketbox and /var/lib/rocketbox survive its boots, all else is fresh."""

    def __init__(self, folder: Path, slot: Path, *, config: str = "", drop_in: str = "") -> None:
        super().__init__(folder)
        self.opt, self.state, self.etc, usr = (folder / name for name in ("opt", "state", "etc", "usr"))
        subprocess.run([TOP / "systemd/install.sh", folder / "stage"], check=True, capture_output=True)
        (folder / "stage/usr").rename(usr)
        if drop_in:
            (usr / "lib/systemd/system/rocketbox.service.d").mkdir(parents=True)
            (usr / "lib/systemd/system/rocketbox.service.d/test.conf").write_text(drop_in)
        for path in (self.opt / "slots", self.state, self.etc):
            path.mkdir(parents=True)
        shutil.copytree(slot, self.opt / "slots/a", symlinks=True)
        state = {"active": "a", "versions": {"a": "1.0.0"}, "committed": ["1.0.0"]}
        (self.opt / "slots/state.json").write_text(json.dumps(state))
        (self.opt / "appliance").symlink_to("slots/a")
        (self.etc / "rocketbox.toml").write_text(config or '[listen]\nhost = "0.0.0.0"\n')

    def where(self) -> list[str]:
        binds = {self.opt: "/opt", self.state: "/var/lib/rocketbox", self.etc: "/etc/rocketbox"}
        words = ["--volatile=yes", "-D", "/", f"--overlay-ro=/usr:{self.folder / 'usr'}:/usr"]
        return words + [f"--bind={outside}:{inside}" for outside, inside in binds.items()]

    def note(self, name: str) -> list[dict[str, object]]:
        from watchdog.notes import read_lines

        return read_lines(self.state / "watchdog" / name)
