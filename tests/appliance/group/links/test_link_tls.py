"""TLS between members: certificates name group and member, and both sides look."""

import ssl
from pathlib import Path

import pytest

from appliance.group.links.link_tls import LinkTls, member_named, member_of
from tests.appliance.group.certificates import certificates, needs_openssl
from uplink_spark.errors import ConfigError, ProtocolError

pytestmark = [pytest.mark.slow, needs_openssl]


def handshake(dialing: ssl.SSLContext, accepting: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Return both sides' sessions after a handshake in memory. Raises ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = dialing.wrap_bio(down, up, server_side=False)
    server = accepting.wrap_bio(up, down, server_side=True)
    for _ in range(5):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return client, server


def test_both_sides_know_who_the_other_one_is() -> None:
    site = certificates()
    a, b = (LinkTls(site / name, clock_ok=True) for name in ("a", "b"))
    client, server = handshake(a.dialing, b.accepting)
    assert (member_of(client), member_of(server)) == (("press", "b"), ("press", "a"))
    assert client.version() == "TLSv1.3"


def test_a_stranger_is_known_by_its_authority_or_has_no_certificate() -> None:
    ours, theirs = certificates(), certificates("other", ("a",))
    with pytest.raises(ssl.SSLError):
        handshake(LinkTls(theirs / "a", clock_ok=True).dialing, LinkTls(ours / "b", clock_ok=True).accepting)
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    plain.check_hostname, plain.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLError, match="did not return a certificate"):
        handshake(plain, LinkTls(ours / "b", clock_ok=True).accepting)


def test_a_certificate_that_was_made_for_another_member_is_told_at_the_start() -> None:
    tls = LinkTls(certificates() / "a", clock_ok=True)
    tls.check_own("press", "a")
    for group, member in (("press", "b"), ("other", "a")):
        with pytest.raises(ConfigError, match=f"box.crt is that of a of press, this is {member} of {group}: copy"):
            tls.check_own(group, member)


def test_an_uplink_is_no_link_of_members() -> None:
    site = certificates()
    a, b = (LinkTls(site / name, clock_ok=True) for name in ("a", "b"))
    a.dialing.set_alpn_protocols(["rocketbox-uplink/1"])
    for session in handshake(a.dialing, b.accepting):
        with pytest.raises(ProtocolError, match="this is not a member's link"):
            member_of(session)


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("urn:rocketbox:member:press:a", ("press", "a")),
        ("urn:rocketbox:member:press", None),
        ("urn:rocketbox:member:a b:c", None),
        ("urn:rocketbox:box:press", None),
    ],
)
def test_the_name_is_group_and_member(uri: str, named: tuple[str, str] | None) -> None:
    assert member_named({"subjectAltName": (("DNS", "x"), ("URI", uri))}) == named


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"box\.crt, box\.key, ca\.crt are needed"):
        LinkTls(tmp_path, clock_ok=True)


def test_files_that_change_are_read_at_the_next_connection_and_broken_ones_are_not(tmp_path: Path) -> None:
    ours, theirs = certificates(), certificates("other", ("a",))
    for name in ("box.crt", "box.key", "ca.crt"):
        (tmp_path / name).write_bytes((theirs / "a" / name).read_bytes())
    a, b = LinkTls(tmp_path, clock_ok=True), LinkTls(ours / "b", clock_ok=True)
    with pytest.raises(ssl.SSLError):
        handshake(a.dialing, b.accepting)
    before = a.dialing
    assert a.dialing is before, "nothing is read again without need"
    for name in ("box.crt", "box.key", "ca.crt"):
        (tmp_path / f"{name}.new").write_bytes((ours / "a" / name).read_bytes())
        (tmp_path / f"{name}.new").rename(tmp_path / name)
    client, server = handshake(a.dialing, b.accepting)
    assert (member_of(client), member_of(server)) == (("press", "b"), ("press", "a"))
    (tmp_path / "box.key").write_bytes(b"none")
    handshake(a.dialing, b.accepting)
    (tmp_path / "box.key").unlink()
    handshake(b.dialing, a.accepting)


def test_words_beside_a_certificate_do_not_matter_a_form_that_openssl_alone_reads_is_refused(tmp_path: Path) -> None:
    for name in ("box.crt", "box.key", "ca.crt"):
        (tmp_path / name).write_bytes((certificates() / "a" / name).read_bytes())
    plain = (tmp_path / "box.crt").read_bytes()
    (tmp_path / "box.crt").write_bytes("Druckerei Müller\n".encode("latin-1") + plain)
    tls = LinkTls(tmp_path, clock_ok=True)
    in_use, ends_ms = tls.dialing, tls.statistics().own_ends_ms
    (tmp_path / "box.crt").write_bytes(plain.replace(b"CERTIFICATE", b"X509 CERTIFICATE"))
    assert tls.dialing is in_use
    assert tls.statistics().failure.endswith("box.crt: holds no certificate in PEM form")
    assert tls.statistics().own_ends_ms == ends_ms


def test_members_of_an_old_and_a_new_authority_are_linked_where_both_are_trusted(tmp_path: Path) -> None:
    old, new = certificates(), certificates("press", ("a", "b"))
    for name, site in (("a", new), ("b", old)):
        (tmp_path / name).mkdir()
        for file in ("box.crt", "box.key"):
            (tmp_path / name / file).write_bytes((site / name / file).read_bytes())
        (tmp_path / name / "ca.crt").write_bytes(b"".join((each / "ca.crt").read_bytes() for each in (old, new)))
    a, b = (LinkTls(tmp_path / name, clock_ok=True) for name in ("a", "b"))
    client, server = handshake(a.dialing, b.accepting)
    assert (member_of(client), member_of(server)) == (("press", "b"), ("press", "a"))
    with pytest.raises(ssl.SSLError):
        handshake(a.dialing, LinkTls(old / "b", clock_ok=True).accepting)
