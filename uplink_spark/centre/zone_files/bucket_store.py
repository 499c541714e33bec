"""What a landing zone asks of a store of objects, whoever's it is, and how an object is created there once."""

from collections.abc import Callable
from typing import Protocol


class BucketStore(Protocol):
    """What a landing zone asks of a store, below a prefix of one bucket. All calls block and raise OSError."""

    place: str  # for messages

    def get(self, path: str, at: int = 0, length: int | None = None) -> bytes | None: ...
    def put(self, path: str, data: bytes) -> None: ...
    def create(self, path: str, data: bytes) -> bool: ...
    def replace(self, path: str, data: bytes) -> None: ...
    def delete(self, path: str) -> None: ...
    def size(self, path: str) -> int: ...
    def written_ms(self, path: str) -> int: ...
    def names(self, folder: str, *, deep: bool = False, after: str = "") -> list[str]: ...


def created(put: Callable[[], object], get: Callable[[], bytes | None], data: bytes) -> bool:
    """Put where nothing is; False when somebody else's is there. A repeat of our own counts as ours. Raises OSError."""
    try:
        put()
    except FileExistsError as error:
        found = get()
        if found is None:
            raise OSError(f"object store: {error}: it does not exist, try again") from error
        return found == data
    return True
