"""The box's own certificate: made once by the openssl program, good for its name and addresses, P-256, ten years.

Its dates do not come from the clock alone, which may be wrong at that moment in either direction: it begins well in the
past, and ends ten years after whichever is later, now or the day this program was made for.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from appliance.access.private_file import settle
from appliance.errors import ApplianceError

BEGINS, NOT_BEFORE_THIS = "20240101000000Z", datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 3653
SECONDS = 30
RULES = """[ca]
default_ca = own
[own]
new_certs_dir = {folder}
database = {folder}/index.txt
rand_serial = yes
default_md = sha256
policy = names
x509_extensions = usage
[names]
commonName = supplied
[usage]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = {names}
"""


class CertificateError(ApplianceError):
    """No certificate could be made; the text says why and what helps."""


def make_certificate(cert: Path, key: Path, name: str, addresses: Sequence[str], *, now: datetime) -> None:
    """Make both files, replacing what is there. Blocks for about 50 ms. Raises CertificateError, OSError."""
    program = shutil.which("openssl")
    if program is None:
        raise CertificateError(
            "the openssl program is missing; install the package `openssl`, or provide certificate and key yourself"
        )
    for folder in {cert.parent, key.parent}:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cert.parent) as text:
        folder = Path(text)
        names = [f"DNS:{name}", "DNS:localhost", *(f"IP:{each}" for each in dict.fromkeys(["127.0.0.1", *addresses]))]
        (folder / "rules").write_text(RULES.format(folder=folder, names=", ".join(names)))
        (folder / "index.txt").touch()
        made_key, asked, made = str(folder / "key"), str(folder / "request"), str(folder / "cert")
        ends = max(now, NOT_BEFORE_THIS) + timedelta(days=DAYS)
        dates = ("-startdate", BEGINS, "-enddate", ends.strftime("%Y%m%d%H%M%SZ"))
        curve = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
        _run(program, "genpkey", *curve, "-out", made_key)
        _run(program, "req", "-new", "-key", made_key, "-subj", f"/CN={name}", "-out", asked)
        signing = ("-selfsign", "-notext", "-config", str(folder / "rules"), "-keyfile", made_key)
        _run(program, "ca", "-batch", *signing, *dates, "-in", asked, "-out", made)
        os.chmod(made_key, 0o600)
        for path, place in ((made_key, key), (made, cert)):
            settle(Path(path), place)


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False, umask=0o077)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise CertificateError(f"openssl {words[1]}: {exc}") from exc
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise CertificateError(f"openssl {words[1]} failed: {said[-1] if said else done.returncode}")


def fingerprint(cert: Path) -> str:
    """Return the SHA-256 that a client can be shown. Raises OSError, ValueError."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(cert.read_text())).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))
