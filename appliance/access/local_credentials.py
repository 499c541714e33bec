"""How a command on the box gets through the box's doors: it asks at admin.sock for the key in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from appliance.admin import AdminRefused, AdminSilent, ask
from appliance.device.probe import PLAIN, LocalCredentials
from netstack.serving.tls import client_context
from netstack.wire.acl import sign
from netstack.wire.command import RemotingCommand

ASK_S = 5.0


def own_key(path: Path) -> dict[str, Any] | None:
    """Return key, secret, mode and whether TLS is required; None if nobody answers or this user may not ask."""
    if not path.parent.is_dir():
        return None
    try:
        said = ask(path, "access.own", timeout_s=ASK_S)
    except (AdminSilent, AdminRefused, ValueError):
        return None
    return said if isinstance(said, dict) else None


def read_credentials(path: Path) -> LocalCredentials:
    """Return what signs requests of this machine, and TLS where plain text is refused."""
    said = own_key(path)
    if said is None:
        return PLAIN
    name, secret = str(said["key"]), str(said["secret"])

    def signed(request: RemotingCommand) -> RemotingCommand:
        sign(request, name, secret)
        return request

    return LocalCredentials(signed, client_context() if said.get("tls") else None)
