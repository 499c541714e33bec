"""The word that lets somebody look at the box from another machine: made at first need, kept with the data."""

from __future__ import annotations

import hmac
import re
import secrets
from pathlib import Path

from appliance.access.private_file import replace_private

NAME = "page.token"
BYTES = 18  # 24 characters
LEGAL = re.compile("[!-~]{8,}")


def read_token(data: Path) -> str:
    """Return the token, making one if there is none, or what is there could be guessed. Blocks. Raises OSError."""
    try:
        token = (data / NAME).read_text(errors="replace").strip()
    except FileNotFoundError:
        token = ""
    return token if LEGAL.fullmatch(token) else new_token(data)


def new_token(data: Path) -> str:
    """Replace the token, so that the old one is no longer valid. Blocks. Raises OSError."""
    token = secrets.token_urlsafe(BYTES)
    replace_private(data / NAME, token + "\n")
    return token


def is_token(given: str, token: str) -> bool:
    """Compare in a time that tells nothing."""
    return hmac.compare_digest(given.encode(), token.encode())
