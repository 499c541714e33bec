"""The file of access keys, from the leader to other boxes: over the link, never through the log, as it has secrets."""

import json
import logging
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

import trio

from appliance.access.access import changing
from appliance.broker.access.accounts import AccountError, Accounts
from appliance.group.links.frames import ACCOUNTS, encode_frame

log = logging.getLogger("appliance.group")
LOOK_S: Final = 5.0
MOST_FILE_BYTES: Final = 1 << 20


class AccountLink(Protocol):
    """A link to another box."""

    def put(self, frame: bytes, /) -> None: ...


class AccountCopies:
    """The keys of one box. `boxes`: those that are linked, while this box leads; nothing otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sent: dict[str, tuple[AccountLink, bytes]] = {}  # the digest of what each was sent over which link
        self._failure = ""
        self._checked: tuple[bytes, bool] = (b"", False)  # the digest of what was looked at last, and whether it fits

    async def run(self, boxes: Callable[[], Iterable[tuple[str, AccountLink]]]) -> None:
        """Send the file when it has changed, and to who has come, until cancelled."""
        while True:
            if found := list(boxes()):
                await self._send(found)
            else:
                self._sent.clear()
            await trio.sleep(LOOK_S)

    async def _send(self, boxes: list[tuple[str, AccountLink]]) -> None:
        data = await trio.to_thread.run_sync(self._read)
        if data is None:
            return
        digest = sha256(data).digest()
        for name, link in boxes:
            if self._sent.get(name) != (link, digest):
                link.put(encode_frame(ACCOUNTS, {}, data))
                self._sent[name] = link, digest

    def _read(self) -> bytes | None:
        """Return the file; None where there is none, or none that others could take. Blocks."""
        try:
            with self._path.open("rb") as file:
                data = file.read(MOST_FILE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as exc:
            self._note(str(exc))
            return None
        return data if self._usable(data) else None

    async def take(self, data: bytes) -> None:
        """Keep what the leader has, if it can be used and is something else than what is here."""
        await trio.to_thread.run_sync(self._keep, data)

    def _keep(self, data: bytes) -> None:
        if not self._usable(data) or data == self._read():
            return
        try:
            with changing(self._path) as replace:
                replace(Accounts.from_object(json.loads(data)))
        except OSError as exc:
            self._note(f"{self._path}: {os.strerror(exc.errno or 0)}")
        else:
            self._failure = ""
            log.info("event=accounts_taken path=%s", self._path)

    def _usable(self, data: bytes) -> bool:
        digest = sha256(data).digest()
        if self._checked[0] != digest:  # every few seconds it is the same
            self._checked = digest, self._fits(data)
        return self._checked[1]

    def _fits(self, data: bytes) -> bool:
        try:
            if len(data) > MOST_FILE_BYTES:
                raise AccountError(f"{len(data)} bytes, at most {MOST_FILE_BYTES} are allowed")
            Accounts.from_object(json.loads(data))
        except (AccountError, ValueError, RecursionError) as exc:
            self._note(str(exc))
            return False
        return True

    def _note(self, reason: str) -> None:
        if reason != self._failure:
            self._failure = reason
            log.error("event=accounts_not_copied reason=%r next_step='check access/accounts.json'", reason)
