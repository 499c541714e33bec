"""The files of a landing zone by relative path: those of a folder by system calls, all others through `pyarrow.fs`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlparse

from uplink_spark.errors import LandingError

OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")  # an object there never grows
GOOGLE = ("gs", "gcs")
SETTINGS = {  # of Arrow's clients, in the query of a URL
    "gs": ("retry_limit_seconds", "30"),  # tries for a quarter of an hour by itself
    "gcs": ("retry_limit_seconds", "30"),
    "s3": ("allow_delayed_open", "true"),  # a small file is one request, not the three of a multipart upload
}
SECRET_VALUE = re.compile(r"([?&][^=&]*(?:secret|key|token|sig|password|credential)[^=&]*=)[^&]*", re.IGNORECASE)
AZURE_URL = re.compile(
    r"abfss?://(?P<container>[^@:/?]+)@(?P<account>[a-z0-9]+)\.(?:dfs|blob)\.core\.windows\.net(?P<path>/[^?]*)?"
)
AZURE_KEY = "AZURE_STORAGE_ACCOUNT_KEY"  # the Delta library's names
AZURE_USES_EMULATOR, AZURE_EMULATOR = "AZURE_STORAGE_USE_EMULATOR", "AZURITE_BLOB_STORAGE_URL"
READ_AHEAD = 16  # objects of a bucket at a time: each is a request


class LocalFiles:
    """The files of a landing zone in a folder of this machine."""

    read_ahead, final = 1, False

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, path: str, at: int) -> bytes | None:
        """Return the bytes of a file from `at` to its end, None where there is no such file."""
        try:
            with open(os.path.join(self.root, path), "rb") as file:
                file.seek(at)
                return file.read()
        except FileNotFoundError:
            return None

    def read_range(self, path: str, at: int, size: int) -> bytes:
        """Return up to size bytes. Raises OSError."""
        with open(os.path.join(self.root, path), "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, at)

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(os.path.join(self.root, folder))
        except (FileNotFoundError, NotADirectoryError):  # somebody's file among the folders of days
            return []

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file so that a reader sees the old or the new bytes."""
        target = Path(self.root, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)


def shown(url: str) -> str:
    """Return a URL for messages: it may carry keys, before the host or in its query."""
    return SECRET_VALUE.sub(r"\1***", re.sub(r"//[^@/]*@", "//***@", url))


def has_key(url: str) -> bool:
    """Whether a URL carries credentials."""
    return urlparse(url).password is not None or SECRET_VALUE.search(url) is not None


def tuned(url: str) -> str:
    """Return a URL with the settings of its store that it does not name itself."""
    parts = urlparse(url)
    name, value = SETTINGS.get(parts.scheme, ("", ""))
    if not name or name in parts.query:
        return url
    return parts._replace(query="&".join(filter(None, (parts.query, f"{name}={value}")))).geturl()


def opened(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it. Raises OSError, ValueError.

    Arrow takes no key of an Azure account from the environment, the Delta library does: both get the same one.
    """
    from pyarrow import fs

    key, found = os.environ.get(AZURE_KEY), AZURE_URL.fullmatch(url)
    if key and found:  # without a key or options of its own
        system = fs.AzureFileSystem(found["account"], account_key=key, **_emulator())
        return system, f"{found['container']}/{unquote(found['path'] or '').strip('/')}".rstrip("/")
    system, base = fs.FileSystem.from_uri(tuned(url))
    return system, base.rstrip("/")


def _emulator() -> dict[str, str]:
    """Where Azurite is, if the environment says to the Delta library that it is used."""
    if os.environ.get(AZURE_USES_EMULATOR, "").lower() not in ("1", "true", "t", "on", "yes", "y"):
        return {}
    place = urlparse(os.environ.get(AZURE_EMULATOR, "http://127.0.0.1:10000"))
    kinds = ("blob", "dfs")
    return {f"{kind}_storage_authority": place.netloc for kind in kinds} | {
        f"{kind}_storage_scheme": place.scheme for kind in kinds
    }


def google_settings(url: str) -> dict[str, str]:
    """Return what the library of the Delta tables is told of a URL of Google's store: a server that is not Google's.

    The user `anonymous`, as Arrow has it for an emulator, asks for no token.
    """
    parts = urlparse(url)
    asked = dict(parse_qsl(parts.query))
    there = "endpoint_override" in asked
    base = {"base_url": f"{asked.get('scheme', 'https')}://{asked['endpoint_override']}"} if there else {}
    if parts.username != "anonymous":
        return {f"google_{name}": value for name, value in base.items()}
    nobody = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    nobody |= {f"gcs_{name}": value for name, value in base.items()}
    return {"google_service_account_key": json.dumps(nobody)}


class RemoteFiles:
    """The files of a landing zone behind any `pyarrow.fs` file system."""

    read_ahead = READ_AHEAD

    def __init__(self, url: str) -> None:
        from pyarrow import fs

        self.root, self._url = shown(url), url
        system, base = opened(url)
        self._fs: Any = fs.SubTreeFileSystem(base, system)
        self._scheme = urlparse(url).scheme
        self.final = self._scheme in OBJECT_STORES

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy for another process opens the store by that one's credentials: this one's do not travel.

        Raises LandingError for a URL with a key in it.
        """
        if has_key(self._url):
            raise LandingError(
                f"{self.root}: a URL with a key goes to no other process; give the key by the environment"
            )
        return RemoteFiles, (self._url,)

    def read(self, path: str, at: int) -> bytes | None:
        try:
            with self._fs.open_input_file(path) as file:
                size = file.size()
                return b"" if at >= size else bytes(file.read_at(size - at, at))
        except FileNotFoundError:
            return None

    def read_range(self, path: str, at: int, size: int) -> bytes:
        with self._fs.open_input_file(path) as file:
            return bytes(file.read_at(size, at))

    def names(self, folder: str) -> list[str]:
        from pyarrow import fs

        deep = self._scheme in GOOGLE  # where Arrow leaves out a folder that is no object of its own
        found = self._fs.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=deep))
        return list(dict.fromkeys(one.path.removeprefix(f"{folder}/").partition("/")[0] for one in found))

    def replace(self, path: str, data: bytes) -> None:
        with self._fs.open_output_stream(path) as stream:
            stream.write(data)


Files = LocalFiles | RemoteFiles


def open_files(url: str) -> Files:
    """Return access to the landing zone at a path or URL. Raises LandingError for a URL nobody can open."""
    parts = urlparse(url)
    if parts.scheme in ("", "file"):
        return LocalFiles(os.path.abspath(unquote(parts.path) if parts.scheme else url))
    try:
        return RemoteFiles(url)
    except (OSError, ValueError) as error:
        raise LandingError(f"landing zone {shown(url)}: {error}; use a path, file:, s3:, gs: or abfs:") from error
