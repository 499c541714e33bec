"""Certificates for a site: an own CA, one for the gateway, one for each box; made by the openssl program."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
from pathlib import Path

from uplink_spark.errors import ConfigError
from uplink_spark.wire.identity import BOX_NAME
from uplink_spark.wire.tls import BOX_URI, MEMBER_URI

CA_DAYS, LEAF_DAYS = 3650, 825
LEFT_S = 30 * 86_400  # of a certificate that is kept
HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")
KEY_IDS = ("subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid")


def _openssl(*arguments: str) -> str:
    program = shutil.which("openssl")
    if program is None:
        raise ConfigError("the openssl program is missing; install the package `openssl` and run this again")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"openssl {' '.join(arguments)} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def _key(path: Path) -> None:
    if not path.exists():
        old = os.umask(0o077)
        try:
            _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
        finally:
            os.umask(old)


def make_ca(folder: Path) -> None:
    """Make ca.key and ca.crt if there are none. Raises ConfigError."""
    folder.mkdir(parents=True, exist_ok=True)
    _key(folder / "ca.key")
    if not (folder / "ca.crt").exists():
        subject = ("-subj", "/CN=Rocketbox uplink CA", "-days", str(CA_DAYS))
        usage = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        key, out = str(folder / "ca.key"), str(folder / "ca.crt")
        _openssl("req", "-x509", "-new", "-sha256", "-key", key, "-out", out, *subject, *usage)


def _leaf(folder: Path, name: str, subject: str, extensions: list[str], days: int, *, ca: Path) -> None:
    _key(folder / f"{name}.key")
    request, facts, made = (folder / f"{name}.{end}" for end in ("csr", "ext", "new"))
    facts.write_text(
        "\n".join(["basicConstraints=CA:FALSE", "keyUsage=critical,digitalSignature", *KEY_IDS, *extensions])
    )
    try:
        _openssl("req", "-new", "-key", str(folder / f"{name}.key"), "-subj", f"/CN={subject}", "-out", str(request))
        _openssl(
            "x509", "-req", "-sha256", "-in", str(request), "-CA", str(ca / "ca.crt"),
            "-CAkey", str(ca / "ca.key"), "-set_serial", f"0x{os.urandom(16).hex()}", "-days", str(days),
            "-extfile", str(facts), "-out", str(made),
        )  # fmt: skip
        made.replace(folder / f"{name}.crt")  # whole: a gateway reads it again when it changes
    finally:
        for path in (request, facts, made):
            path.unlink(missing_ok=True)


def _names(path: Path) -> list[str]:
    """Whose certificate is there, as openssl prints it (`URI:…`, `DNS:…`, `IP Address:…`). Raises ConfigError."""
    if not path.exists():
        return []
    shown = _openssl("x509", "-in", str(path), "-noout", "-ext", "subjectAltName").strip().splitlines()
    return [name.strip() for name in shown[-1].split(",")] if shown else ["nobody"]


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address a gateway is called by, None where it is a DNS name. Raises ConfigError for neither."""
    try:
        return ipaddress.ip_address(host)
    except ValueError as error:
        if HOST_NAME.fullmatch(host) is None or host.replace(".", "").isdigit():
            raise ConfigError(
                f"gateway name {host!r}: a DNS name or an address, as in uplink.gateway of the boxes without the port"
            ) from error
        return None


def check_gateway(folder: Path, host: str) -> None:
    """Raise ConfigError where the folder has the certificate of a gateway of another name."""
    address, names = _address(host), _names(folder / "gateway.crt")
    known = [name.removeprefix("IP Address:") for name in names if name.startswith("IP Address:")]
    same = f"DNS:{host}" in names if address is None else address in map(ipaddress.ip_address, known)
    if names and not same:
        path = folder / "gateway.crt"
        raise ConfigError(
            f"{path} is for {', '.join(names)}, which boxes may use: nothing was changed; move it away first to rename "
            f"the gateway to {host}"
        )


def make_gateway(folder: Path, host: str, days: int = LEAF_DAYS) -> None:
    """Make gateway.key and gateway.crt for a DNS name or address; a key that is there stays. Raises ConfigError."""
    names = f"IP:{host}" if _address(host) else f"DNS:{host}"
    _leaf(folder, "gateway", host, [f"subjectAltName={names}", "extendedKeyUsage=serverAuth"], days, ca=folder)


def check_box_name(box: str) -> None:
    """Raise ConfigError for what cannot name a box."""
    if BOX_NAME.fullmatch(box) is None:
        raise ConfigError(f"box name {box!r}: 1 to 64 of A-Z a-z 0-9 . _ -, not beginning with a dot")


def check_box(folder: Path, box: str) -> None:
    """Raise ConfigError where the folder has the certificate of another box."""
    names = _names(folder / "box.crt")
    if names and f"URI:{BOX_URI}{box}" not in names:
        others = ", ".join(name.removeprefix(f"URI:{BOX_URI}") for name in names)
        raise ConfigError(
            f"{folder / 'box.crt'} and box.key are those of {others}: nothing was changed; with --folders those "
            f"of {box} go to {folder / box}"
        )


def make_box(folder: Path, box: str, days: int = LEAF_DAYS, name: str = "box", ca: Path | None = None) -> None:
    """Make box.key and box.crt with the box's name as SAN URI; a key that is there stays. Raises ConfigError.

    ca: where the CA is.
    """
    check_box_name(box)
    uses = [f"subjectAltName=URI:{BOX_URI}{box}", "extendedKeyUsage=clientAuth"]
    _leaf(folder, name, box, uses, days, ca=ca or folder)


def check_member(name: str) -> tuple[str, str]:
    """Return group and member of `GROUP:MEMBER`. Raises ConfigError."""
    group, _, member = name.partition(":")
    if not (BOX_NAME.fullmatch(group) and BOX_NAME.fullmatch(member)):
        raise ConfigError(f"member {name!r}: GROUP:MEMBER, each 1 to 64 of A-Z a-z 0-9 . _ -, not beginning with a dot")
    return group, member


def make_member(folder: Path, group: str, member: str, days: int = LEAF_DAYS, *, ca: Path) -> None:
    """Make box.key and box.crt of one box of a group; the gateway knows it as the group. Raises ConfigError."""
    names = f"subjectAltName=URI:{BOX_URI}{group},URI:{MEMBER_URI}{group}:{member}"
    _leaf(folder, "box", group, [names, "extendedKeyUsage=clientAuth,serverAuth"], days, ca=ca)


def member_fits(folder: Path, group: str, member: str, left_s: int = LEFT_S) -> bool:
    """Return whether a folder has a member's certificate by its ca.crt that is valid for `left_s` yet."""
    certificate, key = folder / "box.crt", folder / "box.key"
    try:
        if not key.exists() or f"URI:{MEMBER_URI}{group}:{member}" not in _names(certificate):
            return False
        _openssl("verify", "-CAfile", str(folder / "ca.crt"), str(certificate))
        _openssl("x509", "-in", str(certificate), "-noout", "-checkend", str(left_s))
    except ConfigError:
        return False
    return True
