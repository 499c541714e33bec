"""TLS 1.3 of the link between members, both sides authenticated: a certificate names the group and the member.

The name is the SAN URI urn:rocketbox:member:<group>:<member>. Files are those of the uplink: box.crt, box.key, ca.crt.
"""

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from appliance.group.links.frames import ALPN
from netstack.serving.tls import Stamps, not_after_ms, stamps_of
from storage_driver.named_tuple import NamedTuple
from uplink_spark.errors import ConfigError, ProtocolError
from uplink_spark.wire.identity import BOX_NAME
from uplink_spark.wire.tls import MEMBER_URI, NO_CHECK_TIME

log = logging.getLogger("appliance.group")
FILES: Final = ("box.crt", "box.key", "ca.crt")


class MemberCertificates(NamedTuple):
    """When the certificates of members end, in epoch milliseconds, and why new files of this one are not in use."""

    own_ends_ms: int
    ends_ms: Mapping[str, int] = {}  # of the others, as they were shown last
    failure: str = ""


class LinkTls:
    """Both sides' contexts of one member, read again at a look or before a connection where the files have changed.

    Files that cannot be read or do not fit together change nothing: what was read before stays in use.
    """

    def __init__(self, folder: Path, *, clock_ok: bool) -> None:
        """Raises ConfigError."""
        self._folder, self._clock_ok = folder, clock_ok
        self._stamps = _stamps(folder)
        self._accepting, self._dialing, self._own_ends_ms = self._read()
        self._ends_ms: dict[str, int] = {}
        self._failure = ""
        self.renewals = 0  # how often files that fit were read again

    @property
    def accepting(self) -> ssl.SSLContext:
        """The context of who is connected to."""
        self.look()
        return self._accepting

    @property
    def dialing(self) -> ssl.SSLContext:
        """The context of who connects."""
        self.look()
        return self._dialing

    def check_own(self, group: str, member: str) -> None:
        """Raise ConfigError where the certificate names another member: the others would close each connection."""
        named = _named_by(self._dialing, self._accepting)
        if named is not None and named != (group, member):
            whose = f"certificates in {self._folder}: box.crt is that of {named[1]} of {named[0]}"
            raise ConfigError(f"{whose}, this is {member} of {group}: copy the files that were made for this member")

    def saw(self, member: str, session: ssl.SSLObject) -> None:
        """Note the certificate that a member has shown."""
        shown: Any = session.getpeercert() or {}
        if "notAfter" in shown:
            self._ends_ms[member] = int(ssl.cert_time_to_seconds(shown["notAfter"])) * 1000

    def statistics(self) -> MemberCertificates:
        """Return a snapshot."""
        return MemberCertificates(self._own_ends_ms, dict(self._ends_ms), self._failure)

    def look(self) -> None:
        """Read the files again if they have changed."""
        stamps = _stamps(self._folder)
        if stamps == self._stamps:
            return
        self._stamps, self._failure = stamps, ""
        try:
            self._accepting, self._dialing, self._own_ends_ms = self._read()
        except ConfigError as error:
            self._failure = str(error)
            log.error("event=certificates_not_read reason=%r next_step=the_previous_ones_stay_in_use", self._failure)
        else:
            self.renewals += 1
            log.info("event=certificates_read folder=%s", self._folder)

    def _read(self) -> tuple[ssl.SSLContext, ssl.SSLContext, int]:
        """Return the contexts of who accepts and who dials, and when the certificate ends. Raises ConfigError."""
        accepting = _context(ssl.PROTOCOL_TLS_SERVER, self._folder, clock_ok=self._clock_ok)
        accepting.num_tickets = 0  # no resumption, no tickets nobody reads
        dialing = _context(ssl.PROTOCOL_TLS_CLIENT, self._folder, clock_ok=self._clock_ok)
        try:
            ends_ms = not_after_ms((self._folder / "box.crt").read_text("ascii", "replace"))
        except (OSError, ValueError) as error:  # replaced just now, or a form that only OpenSSL reads
            raise ConfigError(f"certificates in {self._folder}: box.crt: {error}") from error
        return accepting, dialing, ends_ms


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
