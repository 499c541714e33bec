"""Who may change a box: one secret per box, derived from the bench's fleet secret, proven by HMAC both ways."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import cbor2

SECRET_BYTES = 32


def box_secret(fleet_secret: bytes, serial: str) -> bytes:
    """Return HKDF-SHA256 of the fleet secret for one serial number, 32 bytes. Source: RFC 5869, one block."""
    key = hmac.digest(b"rocketbox owner 1", fleet_secret, hashlib.sha256)
    return hmac.digest(key, serial.encode() + b"\x01", hashlib.sha256)


def owner_id(fleet_secret: bytes) -> str:
    """Return the name an owner goes by when none is chosen: 8 hex digits that tell nothing about the secret."""
    return hmac.digest(b"rocketbox owner id 1", fleet_secret, hashlib.sha256)[:4].hex()


def bench_mac(secret: bytes, serial: str, box_nonce: bytes, host_nonce: bytes) -> bytes:
    """Return what the bench proves its ownership with."""
    message = b"rocketbox auth 1\0" + serial.encode() + b"\0" + box_nonce + host_nonce
    return hmac.digest(secret, message, hashlib.sha256)


def box_mac(secret: bytes, serial: str, box_nonce: bytes, host_nonce: bytes) -> bytes:
    """Return the box's answer, which proves that it is the one that was claimed."""
    message = b"rocketbox auth 1 box\0" + serial.encode() + b"\0" + host_nonce + box_nonce
    return hmac.digest(secret, message, hashlib.sha256)


def receipt_mac(secret: bytes, receipt: Mapping[str, Any]) -> str:
    """Return the seal over all of a receipt but the seal itself."""
    sealed = {key: value for key, value in receipt.items() if key != "mac"}
    return hmac.digest(secret, b"rocketbox receipt 1\0" + cbor2.dumps(sealed, canonical=True), hashlib.sha256).hex()


def receipt_fits(secret: bytes, receipt: Mapping[str, Any]) -> bool:
    """Tell whether the seal was made with this secret over exactly this receipt."""
    return hmac.compare_digest(str(receipt.get("mac", "")).encode(), receipt_mac(secret, receipt).encode())


class Patience:
    """How long after failed attempts the next one must wait: 1 s, doubling, at most 300 s."""

    def __init__(self) -> None:
        self._failures, self._open_s = 0, 0.0

    def wait_s(self, now_s: float) -> float:
        """Return the seconds still to wait, 0 when an attempt is allowed."""
        return max(0.0, self._open_s - now_s)

    def failed(self, now_s: float) -> float:
        """Count one failure, return the wait it costs."""
        wait_s = min(300.0, 2.0**self._failures)
        self._failures = min(self._failures + 1, 9)
        self._open_s = now_s + wait_s
        return wait_s

    def succeeded(self) -> None:
        self._failures, self._open_s = 0, 0.0
