"""What can go wrong between a box and the centre: broken format, refusals with the code the peer reads, damage."""

from __future__ import annotations


class UplinkError(Exception):
    """Anything this package raises on purpose."""


class ConfigError(UplinkError):
    """A setting cannot work; the text says which and what to do."""


class PieceDamaged(UplinkError):
    """Bytes that are not the piece they claim to be (REFUSED `damaged`)."""


class RecordsBad(UplinkError):
    """A piece whose CRC and digest are right but whose records do not walk (REFUSED `bad_records`)."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(f"log offset {at}: {reason}")
        self.at, self.reason = at, reason


class ProtocolError(UplinkError):
    """The peer broke the uplink protocol; the connection ends."""

    def __init__(self, text: str, code: str = "protocol") -> None:
        super().__init__(text)
        self.code = code


class Refused(UplinkError):
    """A piece or a connection is refused with a code of the protocol."""

    def __init__(self, code: str, text: str, retry_ms: int = 0, **keys: object) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text, self.retry_ms, self.keys = code, text, retry_ms, keys


class ManifestDamaged(UplinkError):
    """A manifest file is broken somewhere else than at its torn tail."""


class LandingError(UplinkError):
    """The landing zone cannot be used: held by another gateway, not writable, unknown layout."""


def first_error(error: BaseException) -> BaseException:
    """The first leaf of an exception group; any other error is itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
