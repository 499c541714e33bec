"""The inbox of a landing zone in an object store: what sites that allow only HTTPS have put there is swept as a stick.

    inbox/<box>/<epoch hex>/<start>-<end>.piece and inbox/<box>/INDEX.mac, uploaded last: the folder is complete

The gateway takes a complete folder, one piece in memory at a time, through the door every stick comes through, so a
shard keeps its one writer, puts RECEIPTS.cbor beside it for the box to fetch, and removes what it has landed: the files
its index names and no others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from uplink_spark.centre.sweep import hand_over
from uplink_spark.errors import UplinkError
from uplink_spark.wire.batch import MAX_CONTAINER_BYTES
from uplink_spark.wire.identity import BOX_NAME
from uplink_spark.wire.stick_files import (
    INDEX,
    RECEIPTS,
    StickFile,
    StickIndex,
    StickReceipt,
    StickRefused,
    check_contents,
    decode_index,
    encode_receipts,
    secret_of,
)

log = logging.getLogger("uplink_spark.gateway")
INBOX = "inbox"
LOOK_S = 60.0
MAX_INDEX_BYTES = 16 << 20  # of about 150,000 pieces
_PIECE = re.compile(r"[0-9a-f]{1,16}/\d{20}-\d{20}(\.pick|\.gap-[0-9a-f]{1,16}-\d{1,20})?\.piece")
Admit = Callable[[trio.SocketStream], Awaitable[None]]


class InboxStore(Protocol):
    """What is needed of objects.ObjectStore."""

    def get(self, path: str, at: int = 0, length: int | None = None) -> bytes | None: ...
    def put(self, path: str, data: bytes) -> None: ...
    def delete(self, path: str) -> None: ...
    def names(self, folder: str, *, deep: bool = False) -> list[str]: ...


class Inbox:
    """One look after the other at a zone's inbox; what is refused stays there and is reported once."""

    def __init__(self, store: InboxStore, secrets: Path, landing_id: bytes, admit: Admit) -> None:
        self._store, self._secrets, self._landing_id, self._admit = store, secrets, landing_id, admit
        self._reported: dict[str, str] = {}

    async def run(self) -> None:
        """Look every LOOK_S until cancelled."""
        while True:
            await self.look()
            await trio.sleep(LOOK_S)

    async def look(self) -> None:
        """Sweep every complete folder that is there."""
        try:
            names = await trio.to_thread.run_sync(partial(self._store.names, INBOX, deep=True))
        except OSError as error:
            self._report("", f"the inbox cannot be listed: {error}")
            return
        self._reported.pop("", None)
        for box in sorted(name.partition("/")[0] for name in names if name.partition("/")[2] == INDEX):
            if BOX_NAME.fullmatch(box):
                await self._look_at(box)

    async def _look_at(self, box: str) -> None:
        try:
            await self._sweep(Path(INBOX, box))
            self._reported.pop(box, None)
        except (UplinkError, OSError) as error:
            self._report(box, str(error))

    def _report(self, box: str, text: str) -> None:
        if self._reported.get(box) != text:
            self._reported[box] = text
            log.error("inbox box=%s not swept: %s", box, text)

    async def _sweep(self, folder: Path) -> None:
        secret = secret_of(self._secrets, folder.name)
        data = await self._fetch(folder / INDEX, MAX_INDEX_BYTES)
        index = decode_index(data, secret, folder)
        for file in index.files:
            if _PIECE.fullmatch(file.name) is None or file.length > MAX_CONTAINER_BYTES:
                raise StickRefused(
                    f"{folder}: the index names {file.name} of {file.length} bytes, which is not a piece"
                )
        receipts = await self._through_the_door(folder, index)
        sealed = encode_receipts(secret, self._landing_id, receipts)
        await trio.to_thread.run_sync(self._settle, folder, data, index, sealed)
        new = sum(not row.dup for row in receipts)
        log.info("inbox box=%s swept pieces=%d new=%d", folder.name, len(receipts), new)

    async def _through_the_door(self, folder: Path, index: StickIndex) -> list[StickReceipt]:
        async def fetch(file: StickFile) -> bytes:
            data = await self._fetch(folder / file.name, file.length + 1)
            check_contents(folder / file.name, data, file)
            return data

        failed: UplinkError | OSError
        with _pair() as (ours, theirs):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._admit, theirs)
                try:
                    return await hand_over(ours, index, fetch)
                except (UplinkError, OSError) as error:
                    failed = error  # raised outside of the nursery, as itself
        raise failed

    async def _fetch(self, path: Path, most: int) -> bytes:
        data = await trio.to_thread.run_sync(self._store.get, str(path), 0, most)
        if data is None:
            raise StickRefused(f"{path} is missing; upload it, or the whole folder again with {INDEX} last")
        return data

    def _settle(self, folder: Path, data: bytes, index: StickIndex, receipts: bytes) -> None:
        """Receipts first, then the index: what is cut off here is swept again (all dup) or is nobody's folder."""
        self._store.put(str(folder / RECEIPTS), receipts)
        if self._store.get(str(folder / INDEX), 0, MAX_INDEX_BYTES) != data:
            return  # replaced meanwhile: the next look sweeps the new one
        for name in (INDEX, *(file.name for file in index.files)):
            self._store.delete(str(folder / name))


@contextmanager
def _pair() -> Iterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Two ends of a local connection."""
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        yield trio.SocketStream(ours), trio.SocketStream(theirs)
