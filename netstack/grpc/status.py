"""What gRPC says beside its messages: status codes, deadlines, texts of failures.

Source: gRPC over HTTP2 (doc/PROTOCOL-HTTP2.md of grpc/grpc).
"""

from enum import IntEnum

LONGEST_TEXT = 1024  # characters of a failure: it travels as a header
_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_DIGITS = 8  # of a timeout


class GrpcStatus(IntEnum):
    """The codes this server uses. Failures of RocketMQ travel inside messages, as their own codes."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CallFailed(Exception):
    """A call ends with this status instead of a message."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(f"{status.name}: {text}")
        self.status, self.text = status, text


def timeout_s(value: bytes | None) -> float | None:
    """Return the seconds of a `grpc-timeout`, None where there is none. Raises CallFailed."""
    if value is None:
        return None
    digits, unit = value[:-1], _UNIT_S.get(value[-1:])
    if unit is None or not digits.isdigit() or len(digits) > _DIGITS:
        text = f"grpc-timeout is {value[:20]!r}, expected 1 to {_DIGITS} digits and one of H M S m u n"
        raise CallFailed(GrpcStatus.INVALID_ARGUMENT, text)
    return int(digits) * unit


def percent_encoded(text: str) -> bytes:
    """Return a text as `grpc-message` carries it, cut to LONGEST_TEXT characters."""
    raw = text[:LONGEST_TEXT].encode("utf-8", "replace")
    return b"".join(bytes((byte,)) if 0x20 <= byte < 0x7F and byte != 0x25 else b"%%%02X" % byte for byte in raw)
