"""A disk that a box has for itself: it freezes and fills without touching that of anybody else."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

DISK_BYTES = 400 << 20


def sh(*words: str) -> None:
    """Run a command. Raises CalledProcessError."""
    subprocess.run(words, check=True, capture_output=True)


class OwnDisk:
    """A file system of its own, mounted below a folder."""

    def __init__(self, folder: Path, name: str, stack: ExitStack) -> None:
        """Make and mount it; the stack takes it away. Raises CalledProcessError."""
        self.mount, image = folder / name, folder / f"{name}.img"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        self.mount.mkdir()
        sh("mkfs.ext4", "-q", "-F", str(image))
        sh("mount", "-o", "loop", str(image), str(self.mount))
        stack.callback(subprocess.run, ["umount", "-l", str(self.mount)], check=False)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let every write to the disk wait. Nobody who writes there can be killed meanwhile."""
        sh("fsfreeze", "-f", str(self.mount))
        try:
            yield
        finally:
            sh("fsfreeze", "-u", str(self.mount))

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave nothing free on the disk."""
        filler = self.mount / "filler"
        try:
            try:
                with filler.open("wb") as file:
                    while True:
                        file.write(bytes(1 << 20))
            except OSError:
                pass
            yield
        finally:
            filler.unlink(missing_ok=True)
