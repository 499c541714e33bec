"""Signatures of requests: what is signed, with which result, and what a verifier has to allow.

The content is the values of all ext fields but `Signature`, in the order of their names and without separators, then
the body; HMAC-SHA1 with the secret key, in base64. Source: RocketMQ 4.9.8 AclClientRPCHook, AclUtils, AclSigner.
"""

import base64
import hmac
from collections.abc import Iterable, Mapping

from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, CHANNEL = "AccessKey", "Signature", "SecurityToken", "OnsChannel"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"  # added after signing by clients up to 4.9.3, before it by later ones


def content(ext: Mapping[str, str], body: bytes, left_out: Iterable[str] = ()) -> bytes:
    """Return the bytes that are signed."""
    skipped = {SIGNATURE, *left_out}
    values = "".join(ext[name] for name in sorted(ext) if name not in skipped)
    return values.encode("utf-8", "replace") + body


def signature(signed: bytes, secret_key: str) -> str:
    return base64.b64encode(hmac.digest(secret_key.encode(), signed, "sha1")).decode()


def is_signed(ext: Mapping[str, str]) -> bool:
    """False also when all fields are there and empty, as the C++ client sends them without an account."""
    return bool(ext.get(ACCESS_KEY) or ext.get(SIGNATURE))


def sign(command: RemotingCommand, access_key: str, secret_key: str, security_token: str | None = None) -> None:
    """Add account and signature; nothing may change in the command afterwards but its opaque."""
    command.ext = {**command.ext, ACCESS_KEY: access_key}
    if security_token is not None:
        command.ext[SECURITY_TOKEN] = security_token
    command.ext[SIGNATURE] = signature(content(command.ext, command.body), secret_key)


def verify(command: RemotingCommand, secret_key: str) -> bool:
    """Return whether the signature is one of those that a client with this key may have made.

    Go leaves the security token out of the content, old clients the mark of a query by unique key. Takes the same time
    for every wrong signature of a request.
    """
    given = command.ext.get(SIGNATURE, "").encode()
    optional = [SECURITY_TOKEN] if SECURITY_TOKEN in command.ext else []
    if command.code == RequestCode.QUERY_MESSAGE and _UNIQUE_KEY_QUERY in command.ext:
        optional.append(_UNIQUE_KEY_QUERY)
    valid = False
    for chosen in range(1 << len(optional)):
        left_out = [name for at, name in enumerate(optional) if chosen >> at & 1]
        expected = signature(content(command.ext, command.body, left_out), secret_key)
        valid |= hmac.compare_digest(expected.encode(), given)
    return valid
