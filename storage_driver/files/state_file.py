"""Small tables in JSON, replaced atomically, with a `.bak` of the previous version.

Apache writes maps with bare integer keys, which is not JSON; they are read, never written.
"""

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import trio

from storage_driver.errors import StateDamaged
from storage_driver.files.disk import Disk, DiskFile
from storage_driver.files.whole_file import put_whole

NOT_SAVED = (StateDamaged, ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""What reading a table raises that no program saved so: a flipped bit may leave JSON."""
MOST_BYTES = 128 << 20  # a hundred thousand topics with their offsets have a third of it


def quote_bare_keys(text: str) -> str:
    """Return the text with every bare integer key in quotes; strings are left alone."""
    out, i, n = [], 0, len(text)
    while i < n:
        char = text[i]
        if char == '"':
            end = i + 1
            while end < n and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            out.append(text[i : end + 1])
            i = end + 1
        elif char.isdigit() or char == "-":
            end = i + 1
            while end < n and (text[end].isalnum() or text[end] in "+-."):
                end += 1
            rest = end
            while rest < n and text[rest].isspace():
                rest += 1
            number = text[i:end]
            out.append(f'"{number}"' if rest < n and text[rest] == ":" else number)
            i = end
        else:
            out.append(char)
            i += 1
    return "".join(out)


def parse_state(raw: bytes) -> Any:
    """Return the value of a state file's bytes. Raises ValueError."""
    text = raw.decode("utf-8").strip("\0 \t\r\n")
    if not text:
        raise ValueError("empty")
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(quote_bare_keys(text))
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def _whole(file: DiskFile) -> bytes:
    """Return what a file holds. Raises ValueError for one that no table fills, and memory could not hold."""
    size = file.size()
    if size > MOST_BYTES:
        raise ValueError(f"{size} bytes, no table has more than {MOST_BYTES}")
    return file.read(size, 0)


def checksum(rows: Any) -> int:
    """Return what tells rows of a table from those with one wrong digit, which is JSON as well."""
    return crc32(json.dumps(rows).encode())


class StateFile:
    """One table on disk; the owner of the table owns the file."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self.failure: OSError | None = None  # of the last save
        self._guessed = self._kept = False  # its owner went on without it; `.damaged` has what it was
        self._damaged = path.with_name(path.name + ".damaged")
        self._disk = disk
        self._backup = path.with_name(path.name + ".bak")
        self._one_thread, self._one_save = trio.CapacityLimiter(1), threading.Lock()

    def load(self) -> Any:
        """Return the table, that of the `.bak` when the file is missing or damaged, None when there is neither.

        Raises StateDamaged when a file is there and nothing of it can be read.
        """
        self._guessed = self._kept = self._disk.exists(self._damaged)
        problem = None
        for path in (self.path, self._backup):
            try:
                value = parse_state(_whole(self._disk.open(path, read_only=True)))
            except FileNotFoundError:
                continue
            except (ValueError, RecursionError) as exc:
                problem = f"{path}: {exc}"
                continue
            return value
        if problem is not None:
            raise StateDamaged(problem)
        return None

    def load_newest(self) -> Any:
        """Return the table as it was saved last, None when there is none.

        Raises StateDamaged when it cannot be read, though the one before perhaps could.
        """
        try:
            return parse_state(_whole(self._disk.open(self.path, read_only=True)))
        except FileNotFoundError:
            if self._disk.exists(self._backup):
                raise StateDamaged(f"{self.path} is missing") from None
            return None
        except (ValueError, RecursionError) as exc:
            raise StateDamaged(f"{self.path}: {exc}") from exc

    def set_aside(self) -> None:
        """Keep a table of which nothing can be read as `.damaged`: the next save would replace it. Blocks.

        One that is there stays: it is what people had, and the one after it was guessed already.
        """
        paths = () if self._disk.exists(self._damaged) else (self._backup, self.path)
        for path in paths:  # the newer one stays, where both are there
            with suppress(OSError):  # a disk that takes no writes
                self._disk.rename(path, self._damaged)
        self._guessed, self._kept = True, self._disk.exists(self._damaged)

    def is_guessed(self) -> bool:
        """Return whether the table begun anew at a start, because it was damaged, and `.damaged` is still there."""
        return self._guessed and (not self._kept or self._disk.exists(self._damaged))

    def save(self, value: Any) -> None:
        """Replace the table: temporary file, sync, old one to `.bak`, rename, sync of the folder. Raises OSError."""
        raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        self._save(raw)

    def _save(self, raw: bytes) -> None:
        with self._one_save:  # threads of several owners share the temporary file
            try:
                self._replace(raw)
            except OSError as exc:
                self.failure = exc
                raise
            self.failure = None

    def _replace(self, raw: bytes) -> None:
        self._disk.make_folder(self.path.parent)
        put_whole(self._disk, self.path, [raw], before=self._keep)

    def _keep(self) -> None:
        if self._disk.exists(self.path):
            with suppress(PermissionError):  # one that is protected against writing stays
                self._disk.remove(self._backup)
                self._disk.link(self.path, self._backup)

    def remove(self) -> None:
        """Remove the table; the previous version first, or it would be the table after a power cut. Raises OSError."""
        for path in (self._backup, self.path):
            self._disk.remove(path)
        self._disk.sync_folder(self.path.parent)

    async def write(self, value: Any) -> None:
        """Do what `save` does in a thread; the value is encoded before the first await. Raises OSError."""
        await self.write_bytes(
            json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        )

    async def write_bytes(self, raw: bytes) -> None:
        """Replace the table by one that its owner encoded: JSON in UTF-8. Raises OSError."""
        await trio.to_thread.run_sync(self._save, raw, limiter=self._one_thread)


def damaged_tables(disk: Disk, folder: Path) -> list[str]:
    """Return which tables of a folder cannot be read, and what is used instead. Raises OSError."""
    found = []
    for facts in disk.list(folder):
        if facts.is_folder or not facts.name.endswith(".json"):
            continue
        try:
            parse_state(_whole(disk.open(folder / facts.name, read_only=True)))
        except (ValueError, RecursionError) as exc:
            file = StateFile(disk, folder / facts.name)
            try:
                file.load()
                taken = "the previous version is used"
            except StateDamaged:
                taken = "nothing of it can be read"
            found.append(f"{folder.name}/{facts.name}: {exc}; {taken}")
    return found
