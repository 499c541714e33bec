"""The end of a certificate, from the bytes of its PEM text."""

from __future__ import annotations

import base64
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uplink_spark.centre.certs import make_box, make_ca
from uplink_spark.wire.expiry import not_after, serial_and_end


def der(tag: int, body: bytes) -> bytes:
    """One element: a short length up to 127, else the number of its bytes and the length."""
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    length = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def certificate(until: bytes, kind: int, *, version: bool = True, issuer: int = 10) -> bytes:
    validity = der(0x30, der(0x17, b"200101000000Z") + der(kind, until))
    front = der(0xA0, der(0x02, b"\2")) if version else b""
    body = front + der(0x02, b"\1" * 16) + der(0x30, b"") + der(0x30, b"i" * issuer) + validity
    return der(0x30, der(0x30, body + der(0x30, b"subject")))


def pem(data: bytes) -> str:
    text = base64.encodebytes(data).decode()
    return f"words in front\n-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("until", "kind", "year"),
    [
        (b"491231235959Z", 0x17, 2049),
        (b"500101000000Z", 0x17, 1950),
        (b"20500101000000Z", 0x18, 2050),
        (b"99991231235959Z", 0x18, 9999),  # RFC 5280 4.1.2.5: no end is known
    ],
)
@pytest.mark.parametrize("version", [True, False])
@pytest.mark.parametrize("issuer", [0, 127, 128, 255, 256, 70_000])
def test_both_forms_of_a_time_and_all_lengths_are_read(
    until: bytes, kind: int, year: int, version: bool, issuer: int
) -> None:
    ends_s = not_after(pem(certificate(until, kind, version=version, issuer=issuer)))
    assert datetime.fromtimestamp(ends_s, UTC).year == year
    assert serial_and_end(pem(certificate(until, kind, version=version, issuer=issuer))) == ("1" + "01" * 15, ends_s)


def test_of_a_chain_the_first_counts() -> None:
    first, second = certificate(b"300101000000Z", 0x17), certificate(b"400101000000Z", 0x17)
    assert datetime.fromtimestamp(not_after(pem(first) + pem(second)), UTC).year == 2030


@settings(max_examples=60)
@given(st.integers(0, 200), st.integers(0, 255), st.booleans())
def test_damaged_bytes_are_a_value_error_or_another_time_and_nothing_else(place: int, byte: int, cut: bool) -> None:
    data = bytearray(certificate(b"300101000000Z", 0x17))
    place %= len(data)
    data[place] = byte
    try:
        not_after(pem(bytes(data[:place] if cut else data)))
    except ValueError:
        pass


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl")
@pytest.mark.parametrize("days", [30, 20_000])
def test_the_end_of_a_certificate_is_read_from_its_file(tmp_path: Path, days: int) -> None:
    make_ca(tmp_path)
    make_box(tmp_path, "box-17", days=days)
    left = not_after((tmp_path / "box.crt").read_text()) - time.time()
    assert abs(left - days * 86_400) < 120  # beyond 2049 the time is written with four digits of the year


@pytest.mark.parametrize(
    ("text", "said"),
    [("none", "substring"), ("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "ends early")],
)
def test_what_is_no_certificate_is_one_kind_of_error(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        not_after(text)
