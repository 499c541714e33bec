"""The inbox: what an index names is landed, receipted and removed, nothing else; what is wrong is told once."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from uplink_spark.centre.gateway import Certificates, Gateway, open_landers
from uplink_spark.centre.zone_files.inbox import Inbox
from uplink_spark.config import GatewayConfig
from uplink_spark.testing import SOURCE, MadeRecord, encode_log, landed_log, raw_piece
from uplink_spark.wire.batch import MAX_CONTAINER_BYTES
from uplink_spark.wire.stick_files import StickFile, StickIndex

NOW = 1_700_000_000_000
SECRET, SIZE = bytes(range(32)), 97
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(12)])
PLACE = "inbox/box-17"


class Shelf:
    """An object store in memory that knows the most it was asked for at once."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.most = 0

    def get(self, path: str, at: int = 0, length: int | None = None) -> bytes | None:
        found = self.objects.get(path)
        if found is None:
            return None
        found = found[at:] if length is None else found[at : at + length]
        self.most = max(self.most, len(found))
        return found

    def put(self, path: str, data: bytes) -> None:
        self.objects[path] = data

    def delete(self, path: str) -> None:
        self.objects.pop(path, None)

    def names(self, folder: str, *, deep: bool = False) -> list[str]:
        return sorted(name.removeprefix(folder + "/") for name in self.objects if name.startswith(folder + "/"))


def put_folder(shelf: Shelf, *bounds: tuple[int, int]) -> StickIndex:
    """Upload records as pieces, index last."""
    files = []
    for first, last in bounds:
        _, container = raw_piece(RAW[first * SIZE : last * SIZE], first * SIZE, codec="zlib")
        name = f"{SOURCE.epoch:x}/{first * SIZE:020d}-{last * SIZE:020d}.piece"
        shelf.put(f"{PLACE}/{name}", container)
        files.append(StickFile(name, len(container), hashlib.sha256(container).digest()))
    index = StickIndex("box-17", ((SOURCE.epoch, 0),), ((7, 0),), len(RAW), tuple(files))
    shelf.put(f"{PLACE}/INDEX.mac", index.encode(SECRET))
    return index


@asynccontextmanager
async def inbox_of(shelf: Shelf, tmp_path: Path) -> AsyncIterator[Inbox]:
    """The inbox of a zone whose gateway runs."""
    (tmp_path / "box-17").write_text(SECRET.hex())
    config = GatewayConfig(str(tmp_path / "zone"), ("127.0.0.1", 0), linger_ms=10)
    with open_landers(config, lambda: NOW) as (landers, hub):
        async with trio.open_nursery() as nursery:
            for lander in landers:
                nursery.start_soon(lander.run)
            yield Inbox(shelf, tmp_path, hub.zone.landing_id, Gateway(hub, Certificates(config)).admit_stick)
            nursery.cancel_scope.cancel()


async def test_what_the_index_does_not_name_stays(tmp_path: Path) -> None:
    shelf = Shelf()
    put_folder(shelf, (0, 4), (4, 8))
    next_upload = f"{SOURCE.epoch:x}/{8 * SIZE:020d}-{12 * SIZE:020d}.piece"
    shelf.put(f"{PLACE}/{next_upload}", b"its index comes last")
    async with inbox_of(shelf, tmp_path) as inbox:
        await inbox.look()
    assert shelf.names(PLACE) == sorted([next_upload, "RECEIPTS.cbor"])
    assert len(landed_log(tmp_path / "zone", "box-17")) == 8


async def test_an_index_uploaded_while_the_one_before_is_swept_is_swept_next(tmp_path: Path) -> None:
    shelf = Shelf()
    put_folder(shelf, (0, 4))
    put = shelf.put

    def put_and_upload(path: str, data: bytes) -> None:
        shelf.put = put  # type: ignore[method-assign]
        put(path, data)
        put_folder(shelf, (0, 4), (4, 12))

    shelf.put = put_and_upload  # type: ignore[method-assign]
    async with inbox_of(shelf, tmp_path) as inbox:
        await inbox.look()
        assert len(shelf.names(PLACE)) == 4
        await inbox.look()
    assert shelf.names(PLACE) == ["RECEIPTS.cbor"]
    assert len(landed_log(tmp_path / "zone", "box-17")) == 12


@pytest.mark.parametrize("how", ["longer", "huge", "missing", "no piece", "unreadable"])
async def test_what_is_wrong_is_told_once_and_nothing_large_is_fetched(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf()
    index = put_folder(shelf, (0, 4))
    (file,) = index.files
    path = f"{PLACE}/{file.name}"
    said = {"longer": "length or SHA-256", "missing": "is missing", "unreadable": "cut off"}.get(how, "is not a piece")
    if how == "missing":
        shelf.delete(path)
    elif how == "no piece":
        index = replace(index, files=(replace(file, name="../box-18/INDEX.mac"),))
    elif how != "unreadable":
        shelf.put(path, bytes(MAX_CONTAINER_BYTES + 1))
        index = replace(index, files=(replace(file, length=1000 if how == "longer" else MAX_CONTAINER_BYTES + 1),))
    shelf.put(f"{PLACE}/INDEX.mac", index.encode(SECRET))
    if how == "unreadable":
        get = shelf.get

        def cut_off(asked: str, at: int = 0, length: int | None = None) -> bytes | None:
            if asked == path:
                raise OSError("object store: cut off")
            return get(asked, at, length)

        monkeypatch.setattr(shelf, "get", cut_off)
    with caplog.at_level(logging.ERROR, "uplink_spark.gateway"):
        async with inbox_of(shelf, tmp_path) as inbox:
            await inbox.look()
            await inbox.look()
    lines = [line for line in caplog.messages if line.startswith("inbox")]
    assert len(lines) == 1
    assert said in lines[0]
    assert shelf.most <= 1001
    assert f"{PLACE}/INDEX.mac" in shelf.objects
