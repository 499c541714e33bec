"""TLS 1.3 of the link between members, both sides authenticated: a certificate names the group and the member.

The name is the SAN URI urn:rocketbox:member:<group>:<member>. Files are those of the uplink: box.crt, box.key, ca.crt.
"""

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from appliance.group.links.frames import ALPN
from netstack.serving.tls import Stamps, stamps_of
from uplink_spark.errors import ConfigError, ProtocolError
from uplink_spark.wire.identity import BOX_NAME
from uplink_spark.wire.tls import MEMBER_URI, NO_CHECK_TIME

log = logging.getLogger("appliance.group")
FILES: Final = ("box.crt", "box.key", "ca.crt")


class LinkTls:
    """Both sides' contexts of one member, read again before a connection where the files have changed.

    Files that cannot be read or do not fit together change nothing: what was read before stays in use.
    """

    def __init__(self, folder: Path, *, clock_ok: bool) -> None:
        """Raises ConfigError."""
        self._folder, self._clock_ok = folder, clock_ok
        self._seen = _stamps(folder)
        self._accepting, self._dialing = self._read()

    @property
    def accepting(self) -> ssl.SSLContext:
        """The context of who is connected to."""
        self._read_again()
        return self._accepting

    @property
    def dialing(self) -> ssl.SSLContext:
        """The context of who connects."""
        self._read_again()
        return self._dialing

    def check_own(self, group: str, member: str) -> None:
        """Raise ConfigError where the certificate names another member: the others would close each connection."""
        named = _named_by(self._dialing, self._accepting)
        if named is not None and named != (group, member):
            whose = f"certificates in {self._folder}: box.crt is that of {named[1]} of {named[0]}"
            raise ConfigError(f"{whose}, this is {member} of {group}: copy the files that were made for this member")

    def _read_again(self) -> None:
        seen = _stamps(self._folder)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._accepting, self._dialing = self._read()
        except ConfigError as error:
            log.error("event=certificates_not_read reason=%r next_step=the_previous_ones_stay_in_use", str(error))
        else:
            log.info("event=certificates_read folder=%s", self._folder)

    def _read(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Raises ConfigError."""
        accepting = _context(ssl.PROTOCOL_TLS_SERVER, self._folder, clock_ok=self._clock_ok)
        accepting.num_tickets = 0  # no resumption, no tickets nobody reads
        return accepting, _context(ssl.PROTOCOL_TLS_CLIENT, self._folder, clock_ok=self._clock_ok)


def _named_by(dialing: ssl.SSLContext, accepting: ssl.SSLContext) -> tuple[str, str] | None:
    """Return the member that a certificate names to the other side, None where it is not taken or names none."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [dialing.wrap_bio(down, up), accepting.wrap_bio(up, down, server_side=True)]
    for side in sides * 2:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return None  # expired, or of another authority: each link says so
    return member_named(sides[1].getpeercert() or {})


def _stamps(folder: Path) -> Stamps:
    return stamps_of(folder / name for name in FILES)


def _context(purpose: int, folder: Path, *, clock_ok: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the name of a member is not that of its address
    context.verify_mode = ssl.CERT_REQUIRED
    if not clock_ok:
        context.verify_flags |= NO_CHECK_TIME
    try:
        context.load_cert_chain(folder / "box.crt", folder / "box.key")
        context.load_verify_locations(folder / "ca.crt")
    except OSError as error:
        what = error.strerror or error
        raise ConfigError(f"certificates in {folder}: box.crt, box.key, ca.crt are needed: {what}") from error
    context.set_alpn_protocols([ALPN])
    return context


def member_of(session: ssl.SSLObject) -> tuple[str, str]:
    """Return group and member that the other side's certificate names. Raises ProtocolError."""
    if session.selected_alpn_protocol() != ALPN:
        raise ProtocolError(f"ALPN {session.selected_alpn_protocol()!r}, expected {ALPN}: this is not a member's link")
    named = member_named(session.getpeercert() or {})
    if named is None:
        text = f"its certificate names no member: it needs the URI {MEMBER_URI}<group>:<member>"
        raise ProtocolError(f"{text} (`uplink_spark certs --member GROUP:MEMBER`)")
    return named


def member_named(certificate: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return group and member that a certificate names, None if it names none."""
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "URI" and str(value).startswith(MEMBER_URI):
            group, _, member = str(value).removeprefix(MEMBER_URI).rpartition(":")
            if BOX_NAME.fullmatch(group) and BOX_NAME.fullmatch(member):
                return group, member
    return None
