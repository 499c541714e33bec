"""A technician's bench: the commands as they are typed, and a played box at a real pseudo terminal."""

import os
import subprocess
import sys
from pathlib import Path

from tests.import_path import import_path


class Bench:
    """One technician's home and one played box."""

    def __init__(self, folder: Path, serial: str = "RBX-0007", box: str = "box") -> None:
        self.folder, self.box = folder, folder / box
        words = [sys.executable, "-m", "appliance", "device", "--pty", "--root", str(self.box), "--serial", serial]
        self._env = {**os.environ, "PYTHONPATH": import_path(), "HOME": str(folder / "home")}
        self.device = subprocess.Popen(words, env=self._env, stdout=subprocess.PIPE, text=True)
        assert self.device.stdout is not None
        line = self.device.stdout.readline()
        self.port = line.split("port=")[1].split()[0]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "appliance", *words],
            env=self._env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def close(self) -> None:
        self.device.kill()
        self.device.wait()
