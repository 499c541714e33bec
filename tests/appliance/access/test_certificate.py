"""The box's own certificate: told by its fingerprint, good whatever the clock says, and never half replaced."""

import hashlib
import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from appliance.access.certificate import CertificateError, fingerprint, make_certificate
from uplink_spark.wire.expiry import not_after

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def test_the_fingerprint_is_that_of_the_bytes_inside(tmp_path: Path) -> None:
    cert = tmp_path / "box.crt"
    cert.write_text(ssl.DER_cert_to_PEM_cert(b"0\x03abc"))
    digest = hashlib.sha256(b"0\x03abc").hexdigest().upper()
    assert fingerprint(cert) == ":".join(digest[at : at + 2] for at in range(0, 64, 2))
    cert.write_text("no certificate")
    with pytest.raises(ValueError, match="PEM"):
        fingerprint(cert)


def test_without_openssl_nothing_is_touched_and_the_next_step_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CertificateError, match="install the package `openssl`"):
        make_certificate(tmp_path / "tls/box.crt", tmp_path / "tls/box.key", "box", [], now=NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_fails_is_quoted_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/openssl"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho first >&2\necho unable to load config >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    cert, key = tmp_path / "tls/box.crt", tmp_path / "tls/box.key"
    cert.parent.mkdir()
    cert.write_text("old")
    key.write_text("old key")
    with pytest.raises(CertificateError, match="openssl genpkey failed: unable to load config"):
        make_certificate(cert, key, "box", [], now=NOW)
    assert (cert.read_text(), key.read_text()) == ("old", "old key")
    assert sorted(path.name for path in cert.parent.iterdir()) == ["box.crt", "box.key"]


@pytest.mark.slow
@pytest.mark.parametrize(("year", "ends"), [(1970, 2036), (2026, 2036), (2060, 2070)])
def test_it_lasts_ten_years_from_now_or_from_when_the_program_was_made(tmp_path: Path, year: int, ends: int) -> None:
    cert, key = tmp_path / "box.crt", tmp_path / "box.key"
    make_certificate(cert, key, "box", ["10.1.0.7", "10.1.0.7"], now=datetime(year, 1, 1, tzinfo=UTC))
    assert datetime.fromtimestamp(not_after(cert.read_text()), UTC).year == ends
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["box.crt", "box.key"]
