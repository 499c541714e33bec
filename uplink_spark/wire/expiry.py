"""Which certificate it is and when it ends, from its PEM text: the library decodes only what a peer sent."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

SEQUENCE, UTC_TIME, EXPLICIT_0 = 0x30, 0x17, 0xA0


def serial_and_end(pem: str) -> tuple[str, float]:
    """Return serial number (hex) and end of validity (seconds since 1970) of the first certificate. Raises ValueError.

    DER (RFC 5280 4.1): Certificate { tbs { [0] version, serial, signature, issuer, validity { notBefore, notAfter } } }
    """
    begin = pem.index("-----BEGIN CERTIFICATE-----")
    end = pem.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----")
    der = ssl.PEM_cert_to_DER_cert(pem[begin:end])
    try:
        at, _ = _inside(der, 0)
        at, _ = _inside(der, at)
        if der[at] == EXPLICIT_0:
            at = _next(der, at)
        start, stop = _span(der, at)
        serial = der[start:stop].hex().lstrip("0")
        for _ in ("serial", "signature", "issuer"):
            at = _next(der, at)
        at, _ = _inside(der, at)
        at = _next(der, at)
        kind, (start, stop) = der[at], _span(der, at)
        text = der[start:stop].decode("ascii")
    except IndexError as error:
        raise ValueError("the certificate ends early") from error
    if kind == UTC_TIME:  # two digits: 1950 to 2049
        text = ("20" if text < "50" else "19") + text
    return serial, datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def not_after(pem: str) -> float:
    """Return the end of validity of the first certificate, seconds since 1970. Raises ValueError."""
    return serial_and_end(pem)[1]


def _span(der: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the element at `at` begins and ends."""
    first = der[at + 1]
    if first < 0x80:
        return at + 2, at + 2 + first
    width = first & 0x7F
    start = at + 2 + width
    return start, start + int.from_bytes(der[at + 2 : start])


def _next(der: bytes, at: int) -> int:
    return _span(der, at)[1]


def _inside(der: bytes, at: int) -> tuple[int, int]:
    if der[at] != SEQUENCE:
        raise ValueError(f"certificate: tag {der[at]:#x} at {at}, a sequence was expected")
    return _span(der, at)
