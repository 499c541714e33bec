"""Certificates for a site: an own CA, one for the gateway, one for each box; made by the openssl program."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from uplink_spark.batch import BOX_NAME
from uplink_spark.errors import ConfigError
from uplink_spark.tls import BOX_URI

CA_DAYS, LEAF_DAYS = 3650, 825
KEY_IDS = ("subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid")


def _openssl(*arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise ConfigError("the openssl program is missing; install the package `openssl` and run this again")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"openssl {arguments[0]} failed: {done.stderr.strip().splitlines()[-1:]}")


def _key(path: Path) -> None:
    if not path.exists():
        old = os.umask(0o077)
        try:
            _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
        finally:
            os.umask(old)


def make_ca(folder: Path) -> None:
    """Make ca.key and ca.crt where there are none. Raises ConfigError."""
    folder.mkdir(parents=True, exist_ok=True)
    _key(folder / "ca.key")
    if not (folder / "ca.crt").exists():
        subject = ("-subj", "/CN=Rocketbox uplink CA", "-days", str(CA_DAYS))
        usage = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        key, out = str(folder / "ca.key"), str(folder / "ca.crt")
        _openssl("req", "-x509", "-new", "-sha256", "-key", key, "-out", out, *subject, *usage)


def _leaf(folder: Path, name: str, subject: str, extensions: list[str], days: int, *, ca: Path) -> None:
    _key(folder / f"{name}.key")
    request, facts = folder / f"{name}.csr", folder / f"{name}.ext"
    facts.write_text(
        "\n".join(["basicConstraints=CA:FALSE", "keyUsage=critical,digitalSignature", *KEY_IDS, *extensions])
    )
    try:
        _openssl("req", "-new", "-key", str(folder / f"{name}.key"), "-subj", f"/CN={subject}", "-out", str(request))
        _openssl(
            "x509", "-req", "-sha256", "-in", str(request), "-CA", str(ca / "ca.crt"),
            "-CAkey", str(ca / "ca.key"), "-set_serial", f"0x{os.urandom(16).hex()}", "-days", str(days),
            "-extfile", str(facts), "-out", str(folder / f"{name}.crt"),
        )  # fmt: skip
    finally:
        request.unlink(missing_ok=True)
        facts.unlink(missing_ok=True)


def make_gateway(folder: Path, host: str, days: int = LEAF_DAYS) -> None:
    """Make gateway.key and gateway.crt for a DNS name or address. Raises ConfigError."""
    numeric = host.replace(".", "").isdigit() or ":" in host
    names = f"IP:{host}" if numeric else f"DNS:{host}"
    _leaf(folder, "gateway", host, [f"subjectAltName={names}", "extendedKeyUsage=serverAuth"], days, ca=folder)


def check_box_name(box: str) -> None:
    """Raise ConfigError for what cannot name a box."""
    if BOX_NAME.fullmatch(box) is None:
        raise ConfigError(f"box name {box!r}: 1 to 64 of A-Z a-z 0-9 . _ -, not beginning with a dot")


def make_box(folder: Path, box: str, days: int = LEAF_DAYS, name: str = "box", ca: Path | None = None) -> None:
    """Make box.key and box.crt with the box's name as SAN URI; ca: where the CA lies. Raises ConfigError."""
    check_box_name(box)
    uses = [f"subjectAltName=URI:{BOX_URI}{box}", "extendedKeyUsage=clientAuth"]
    _leaf(folder, name, box, uses, days, ca=ca or folder)
