"""Where a table is: a folder that driver and executors mount, or a prefix of a bucket (S3, Azure, Google).

A bucket needs two things: what was written can be read at once, and an object can be created only if it is absent
(S3: If-None-Match). The second makes one commit win, without a lock table. Credentials come from where the platform
has them (environment, profile, role of the machine), never from the URL: URLs are printed and logged.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from uplink_spark.jobs.table.commits import TableError
from uplink_spark.wire.durable import sync_folder
from uplink_spark.zone.files import google_settings, opened
from uplink_spark.zone.manifest import LANDING_NAME

SCHEMES = ("s3", "gs", "abfs", "abfss")
RETRIES = {"max_retries": "5", "retry_timeout": "60s"}  # the library's own three minutes are a silent job
KNOWN = {"s3": {"endpoint_override", "scheme", "region"}, "gs": {"endpoint_override", "scheme"}}  # in a query
Stamp = tuple[int | None, int | None]  # bytes, time of change
_COLOURS = re.compile(r"\x1b\[[0-9;]*m|[↳]")


class FolderLocation:
    """A table in a folder that driver and executors see at the same path."""

    remote = False
    options: Mapping[str, str] | None = None

    def __init__(self, root: str) -> None:
        self.path = Path(root).absolute()
        self.text = self.url = str(self.path)

    def prepare(self) -> None:
        """Make the folder. Raises TableError where that cannot be, or where a landing zone is."""
        if self.has(LANDING_NAME):
            raise _landing_zone(self.text)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise TableError(f"table {self.text} cannot be written: {error.strerror}") from error

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def stamp(self, name: str) -> Stamp | None:
        """Return what tells a file from another of its name, None where there is none."""
        try:
            found = (self.path / name).stat()
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, None where there is none."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """Yield a file to write to; after the block its bytes and its name are on the disk."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(path), "wb") as file:
            yield file
        self.sync([name])

    def sync(self, names: Iterable[str]) -> None:
        """Put files of another writer, in one folder, on the disk."""
        folders = set()
        for name in names:
            fd = os.open(self.path / name, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            folders.add((self.path / name).parent)
        for folder in folders:
            sync_folder(folder)

    def file_system(self) -> fs.FileSystem:
        return fs.SubTreeFileSystem(self.text, fs.LocalFileSystem())


class ObjectLocation:
    """A table below a prefix of an object store; an object is there as a whole, and durable, once it is written."""

    remote = True

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.text, self.url = url, parts._replace(query="").geturl().rstrip("/")
        self.options = _delta_options(url)
        self._opened: fs.FileSystem | None = None

    def prepare(self) -> None:
        """Raises TableError where the bucket cannot be read, or where a landing zone is."""
        if self.has(LANDING_NAME):
            raise _landing_zone(self.text)

    def has(self, name: str) -> bool:
        """Whether there is an object of this name, or one below it."""
        found = self._asked(lambda: self.file_system().get_file_info(name))
        return bool(found.type != fs.FileType.NotFound)

    def stamp(self, name: str) -> Stamp | None:
        found = self._asked(lambda: self.file_system().get_file_info(name))
        return (found.size, found.mtime_ns) if found.type == fs.FileType.File else None

    def read(self, name: str) -> bytes | None:
        try:
            with self.file_system().open_input_stream(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowInvalid) as error:
            raise self._failed(error) from error

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """Yield a stream to write to; the object is there after the block."""
        with self.file_system().open_output_stream(name) as stream:
            yield stream

    def sync(self, names: Iterable[str]) -> None:
        """An object is durable when its PUT is answered."""

    def file_system(self) -> fs.FileSystem:
        if self._opened is None:
            self._opened = self._asked(lambda: _opened(self.text))
        return self._opened

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (OSError, pa.ArrowInvalid) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> TableError:
        return TableError(f"table {self.text} cannot be reached: {reason(error)}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


Location = FolderLocation | ObjectLocation


def locate(root: str) -> Location:
    """Return where a path or URL points to. Raises TableError for a URL that no table can be at."""
    scheme, found, _ = root.partition("://")
    if not found or scheme == "file":
        return FolderLocation(root.removeprefix("file://"))
    if scheme not in SCHEMES:
        raise TableError(f"table {scheme}://…: a table is in a folder or at {', '.join(SCHEMES)}; give such a URL")
    return ObjectLocation(root)


def _landing_zone(text: str) -> TableError:
    return TableError(f"{text} is a landing zone: give the table a folder of its own")


def reason(error: Exception) -> str:
    """Return the text of a library's error on one line."""
    return " ".join(_COLOURS.sub("", str(error)).split())


def _opened(url: str) -> fs.FileSystem:
    system, base = opened(url)
    return fs.SubTreeFileSystem(base, system)


def _delta_options(url: str) -> dict[str, str]:
    """Return what the Delta library is told beside the URL. Raises TableError for what does not belong into one."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query))
    known = KNOWN.get(parts.scheme, set())
    if unknown := sorted(set(asked) - known):
        raise TableError(
            f"table {parts.scheme}://…: {unknown[0]} does not belong into the URL of a table "
            f"(allowed: {', '.join(sorted(known)) or 'nothing'}); give credentials by environment, profile or role"
        )
    if parts.password is not None or (parts.scheme == "s3" and parts.username is not None):
        raise TableError(
            f"table {parts.scheme}://…: credentials do not belong into a URL, which is printed and logged; give them "
            "by environment, profile or role"
        )
    options = dict(RETRIES)
    if parts.scheme == "s3":  # with an endpoint the library would not look into the profile
        options["aws_force_credential_load"] = "true"
        options |= _s3_settings(asked)
    if parts.scheme == "gs":
        options |= google_settings(url) | ({"allow_http": "true"} if asked.get("scheme") == "http" else {})
    return options


def _s3_settings(asked: Mapping[str, str]) -> dict[str, str]:
    settings = {"aws_region": asked["region"]} if "region" in asked else {}
    if "endpoint_override" in asked:
        scheme = asked.get("scheme", "https")
        settings["aws_endpoint"] = f"{scheme}://{asked['endpoint_override']}"
        settings |= {"aws_allow_http": "true"} if scheme == "http" else {}
    return settings
