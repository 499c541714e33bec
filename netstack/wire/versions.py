"""Versions of clients: remoting sends numbers, gRPC sends text. Source: RocketMQ 5.5.0 MQVersion.Version, ordinals."""

import re
from typing import Final

FIRST: Final = 213  # V4_0_0; each patch has two numbers, of its snapshot and of itself
LAST: Final = FIRST + 2 * 199  # V5_9_9
FIRST_5: Final = FIRST + 200
OWN: Final = re.compile(r"5\.([0-9])\.([0-9])(?![0-9.])")


def version_text(number: int) -> str:
    """Return a version as people write it."""
    if number < FIRST - 1:
        return "3.x"
    if number > LAST:
        return "6.x"
    patches, snapshot = divmod(number + 1 - FIRST, 2)
    major, rest = divmod(patches, 100)
    return f"{major + 4}.{rest // 10}.{rest % 10}" + ("" if snapshot else "-SNAPSHOT")


def version_name(number: int) -> str:
    """Return a version as metrics of RocketMQ 5 have it: v5_0_8."""
    return "v" + version_text(number).replace(".", "_").replace("-", "_").lower()


def version_number(text: str) -> int:
    """Return the number of a gRPC client's version; those with a count of their own, or none, are 5.0.0."""
    found = OWN.match(text)
    return FIRST_5 + 2 * (int(found[1]) * 10 + int(found[2]) if found else 0)
