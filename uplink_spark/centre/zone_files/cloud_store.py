"""One bucket of Google's store, or one container of Azure's, as the landing zone and its retention use it.

The library is that of the Delta tables (object_store), spoken to through obstore. Credentials come from where the
platform has them: GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY, the role of the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

from uplink_spark.centre.zone_files.bucket_store import created
from uplink_spark.errors import LandingError
from uplink_spark.zone.files import AZURE_URL, google_settings, has_key, shown

CLIENT = {"connect_timeout": "10s", "timeout": "60s"}
RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}


class NoSuchPlace(OSError):
    """The store answers 404: there is no such object or, where something is written or listed, no such bucket."""


class CloudStore:
    """Get, put, create and list below a prefix of one bucket; errors are OSError. Blocks."""

    def __init__(self, store: Any, place: str) -> None:
        self._store, self.place = store, place
        self._library: Any = import_module("obstore")
        self._faults: Any = import_module("obstore.exceptions")

    def _found(self, call: Callable[..., Any], *given: Any, **more: Any) -> Any:
        """Ask for an object; None where there is none. Raises OSError."""
        try:
            return self._ask(call, *given, **more)
        except NoSuchPlace:
            return None

    def _ask(self, call: Callable[..., Any], *given: Any, **more: Any) -> Any:
        """Call the library. Raises FileExistsError for a lost race, OSError for all else."""
        try:
            return call(self._store, *given, **more)
        except FileNotFoundError as error:
            text = "the bucket or container is not there: make it, or mend its name in --landing"
            raise NoSuchPlace(f"object store: {self.place}: {text}") from error
        except (self._faults.AlreadyExistsError, self._faults.PreconditionError) as error:
            raise FileExistsError(_first_line(error)) from error
        except self._faults.BaseError as error:
            raise OSError(f"object store: {_first_line(error)}") from error

    def get(self, path: str, at: int = 0, length: int | None = None) -> bytes | None:
        if length is not None:
            found = self._found(self._library.get_range, path, start=at, length=length)
            return None if found is None else bytes(found)
        found = self._found(self._library.get, path)
        return None if found is None else bytes(found.bytes())

    def put(self, path: str, data: bytes) -> None:
        self._ask(self._library.put, path, data, use_multipart=False)

    def create(self, path: str, data: bytes) -> bool:
        """Create an object that is not there; False when somebody else's is. A repeat of our own counts as ours."""
        put = partial(self._ask, self._library.put, path, data, mode="create", use_multipart=False)
        return created(put, lambda: self.get(path), data)

    replace = put

    def delete(self, path: str) -> None:
        self._found(self._library.delete, path)

    def size(self, path: str) -> int:
        found = self._found(self._library.head, path)
        return 0 if found is None else int(found["size"])

    def written_ms(self, path: str) -> int:
        """When an object was put there, by the store's clock; 0 if there is none."""
        found = self._found(self._library.head, path)
        return 0 if found is None else int(found["last_modified"].timestamp() * 1000)

    def names(self, folder: str, *, deep: bool = False, after: str = "") -> list[str]:
        """The names in a folder, of objects and of folders; deep: of objects in all folders below it, as paths.

        after: only names behind it in the order of their bytes; those before it are not asked for.
        """
        prefix = f"{folder}/"
        if not deep and not after:
            page = self._ask(self._library.list_with_delimiter, folder)
            paths = [item["path"] for item in page["objects"]] + [f"{path}/" for path in page["common_prefixes"]]
            return [path.removeprefix(prefix).rstrip("/") for path in paths]
        paths = self._paths(folder, prefix + after if after else None)
        found = [path.removeprefix(prefix) for path in paths]
        return found if deep else list(dict.fromkeys(path.partition("/")[0] for path in found))

    def _paths(self, folder: str, offset: str | None) -> list[str]:
        def listed(store: Any) -> list[str]:
            return [item["path"] for page in self._library.list(store, folder, offset=offset) for item in page]

        found: list[str] = self._ask(listed)
        return found


def open_cloud(url: str) -> CloudStore:
    """Return the store of a URL. Raises LandingError."""
    if has_key(url):
        raise LandingError(
            f"landing zone {shown(url)}: a key does not belong in a URL; set AZURE_STORAGE_ACCOUNT_KEY or "
            "GOOGLE_APPLICATION_CREDENTIALS, or use a role"
        )
    try:
        stores, faults = import_module("obstore.store"), import_module("obstore.exceptions")
    except ImportError as error:
        raise LandingError(f"landing zone {shown(url)} needs obstore; install it with: pip install obstore") from error
    try:
        store = _google(url, stores) if urlparse(url).scheme == "gs" else _azure(url, stores)
    except (faults.BaseError, ValueError) as error:
        raise LandingError(f"landing zone {shown(url)}: {_first_line(error)}") from error
    return CloudStore(store, url.partition("?")[0].rstrip("/"))


def _first_line(error: Exception) -> str:
    """Return what happened, without the library's record of its own calls."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _google(url: str, stores: Any) -> Any:
    parts = urlparse(url)
    client = CLIENT | ({"allow_http": True} if parse_qs(parts.query).get("scheme") == ["http"] else {})
    return stores.GCSStore(
        parts.hostname,
        prefix=unquote(parts.path).strip("/") or None,
        config=google_settings(url),
        client_options=client,
        retry_config=RETRIES,
    )


def _azure(url: str, stores: Any) -> Any:
    found = AZURE_URL.fullmatch(url.partition("?")[0])
    if found is None:
        raise ValueError("write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH")
    return stores.AzureStore(
        found["container"],
        prefix=unquote(found["path"] or "").strip("/") or None,
        config={"account_name": found["account"]},
        client_options=CLIENT,
        retry_config=RETRIES,
    )
