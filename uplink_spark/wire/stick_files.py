"""The files of a stick, which a box writes and a gateway sweeps: an index with a MAC under the box's uplink secret.

DIR/<box>/<epoch hex>/<20-digit start>-<20-digit end>.piece; express lane: .pick.piece, loss: .gap-<run>-<number>.piece
    DIR/<box>/INDEX.mac      CBOR {v, box, lineage, runs, durable, files: [[name, bytes, sha256], ...]}, HMAC-SHA-256
    DIR/<box>/RECEIPTS.cbor  CBOR {v, landing, r: [[epoch, start, end, sha, seq, dup, kind], ...]}, HMAC-SHA-256
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uplink_spark.errors import PieceDamaged, UplinkError
from uplink_spark.wire.cbor import Fields, decode_map, encode_map

INDEX, RECEIPTS = "INDEX.mac", "RECEIPTS.cbor"
MAC_BYTES = 32


class StickRefused(UplinkError):
    """The stick is not what its index says, or nobody vouches for it."""


@dataclass(frozen=True, slots=True)
class StickFile:
    """One piece on the stick."""

    name: str  # relative to the box's folder
    length: int
    sha: bytes


@dataclass(frozen=True, slots=True)
class StickIndex:
    """What a box put on a stick."""

    box: str
    lineage: tuple[tuple[int, int], ...]
    runs: tuple[tuple[int, int], ...]
    durable: int
    files: tuple[StickFile, ...]

    def encode(self, secret: bytes) -> bytes:
        return _sealed(
            {
                "v": 1,
                "box": self.box,
                "lineage": [list(pair) for pair in self.lineage],
                "runs": [list(pair) for pair in self.runs],
                "durable": self.durable,
                "files": [[file.name, file.length, file.sha] for file in self.files],
            },
            secret,
            b"rocketbox stick index\0",
        )


def _sealed(body: dict[str, object], secret: bytes, purpose: bytes) -> bytes:
    data = encode_map(body)
    return data + hmac.digest(secret, purpose + data, "sha256")


def _opened(data: bytes, secret: bytes | None, purpose: bytes, what: str) -> Fields:
    """Return the fields; secret None: whoever asks vouches for the stick. Raises StickRefused."""
    body, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
    if secret is not None and not hmac.compare_digest(hmac.digest(secret, purpose + body, "sha256"), mac):
        raise StickRefused(f"{what}: the MAC is wrong: not written with this box's uplink secret, or tampered with")
    try:
        return Fields(decode_map(body), what)
    except PieceDamaged as error:
        raise StickRefused(str(error)) from error


def secret_of(secrets: Path, box: str) -> bytes:
    """Return the uplink secret of a box, kept as hex in the file secrets/<box>. Raises StickRefused."""
    try:
        return bytes.fromhex((secrets / box).read_text().strip())
    except FileNotFoundError as error:
        raise StickRefused(f"no secret for box {box}: write it in hex into {secrets / box}") from error
    except (OSError, ValueError) as error:
        raise StickRefused(
            f"{secrets / box} cannot be used: {error}; write the uplink secret in hex into it"
        ) from error


def read_index(folder: Path, secret: bytes | None) -> StickIndex:
    """Return the index of DIR/<box>, each file's name, length and digest compared. Raises StickRefused."""
    try:
        data = (folder / INDEX).read_bytes()
    except FileNotFoundError as error:
        raise StickRefused(f"{folder} has no {INDEX}: write it with `rocketbox uplink export --to DIR`") from error
    index = decode_index(data, secret, folder)
    for file in index.files:
        _check_file(folder, file)
    return index


def decode_index(data: bytes, secret: bytes | None, folder: Path) -> StickIndex:
    """Return what the index of a box's folder says, its files not looked at. Raises StickRefused."""
    try:
        fields = _opened(data, secret, b"rocketbox stick index\0", str(folder / INDEX))
        rows = fields.rows("files", str, int, bytes)
        files = tuple(StickFile(str(name), int(str(length)), _octets(sha)) for name, length, sha in rows)
        index = StickIndex(
            fields.text("box"),
            tuple(fields.pairs("lineage")),
            tuple(fields.pairs("runs")),
            fields.uint("durable"),
            files,
        )
    except PieceDamaged as error:
        raise StickRefused(str(error)) from error
    if not index.lineage or not index.runs:
        raise StickRefused(f"{folder}: the index names no epoch or no run; export again")
    if index.box != folder.name:
        raise StickRefused(f"{folder}: the index is of box {index.box}")
    return index


def _octets(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise PieceDamaged("a digest that is not a byte string")
    return value


def _check_file(folder: Path, file: StickFile) -> None:
    path = folder / file.name
    if ".." in Path(file.name).parts or Path(file.name).is_absolute():
        raise StickRefused(f"{folder}: the index names {file.name}, which is not inside the folder")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StickRefused(f"{path}: {error.strerror}; the stick is not complete") from error
    check_contents(path, data, file)


def check_contents(path: Path, data: bytes, file: StickFile) -> None:
    """Raise StickRefused when these are not the bytes the index names."""
    if len(data) != file.length or hashlib.sha256(data).digest() != file.sha:
        raise StickRefused(f"{path}: length or SHA-256 differs from the index")


def write_file(folder: Path, name: str, data: bytes) -> StickFile:
    """Write one file of a stick, synced. Raises OSError."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return StickFile(name, len(data), hashlib.sha256(data).digest())


@dataclass(frozen=True, slots=True)
class StickReceipt:
    """One receipted piece of a stick."""

    epoch: int
    start: int
    end: int
    sha: bytes
    seq: int
    dup: int
    kind: str


def write_receipts(folder: Path, secret: bytes, landing: bytes, rows: Sequence[StickReceipt]) -> None:
    """Put the receipts on the stick, for the box to take back."""
    write_file(folder, RECEIPTS, encode_receipts(secret, landing, rows))


def encode_receipts(secret: bytes, landing: bytes, rows: Sequence[StickReceipt]) -> bytes:
    listed = [[r.epoch, r.start, r.end, r.sha, r.seq, r.dup, r.kind] for r in rows]
    return _sealed({"v": 1, "landing": landing, "r": listed}, secret, b"rocketbox stick receipts\0")


def read_receipts(folder: Path, secret: bytes) -> tuple[bytes, list[StickReceipt]]:
    """Return landing id and receipts of DIR/<box>. Raises StickRefused."""
    try:
        data = (folder / RECEIPTS).read_bytes()
    except OSError as error:
        raise StickRefused(f"{folder / RECEIPTS}: {error.strerror}; has the stick been swept?") from error
    fields = _opened(data, secret, b"rocketbox stick receipts\0", str(folder / RECEIPTS))
    try:
        rows: list[list[Any]] = fields.rows("r", int, int, int, bytes, int, int, str)
        return fields.octets("landing", 16), [StickReceipt(*row) for row in rows]
    except PieceDamaged as error:
        raise StickRefused(str(error)) from error
