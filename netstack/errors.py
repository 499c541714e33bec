"""What can go wrong on the wire, as facts."""


class ProtocolError(Exception):
    """The peer broke the format: its connection closes without a reply."""


class WindowExceeded(ProtocolError):
    """The peer sent more than a window of HTTP/2 had room for, or opened one beyond 2^31 - 1."""


class HttpSpoken(ProtocolError):
    """The peer speaks HTTP, as browsers do: it is told what the port is."""


class Refused(Exception):
    """A request that is understood and not granted; travels back as (code, remark)."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code
        self.remark = remark


class ChannelClosed(Exception):
    """The connection ended before the answer came; whether the peer acted on the request is unknown."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"connection to {peer} closed: {reason}")
        self.peer = peer
        self.reason = reason


class AskTimeout(Exception):
    """No answer within the time the caller gave; the connection stays open."""

    def __init__(self, peer: str, code: int, timeout_s: float) -> None:
        super().__init__(f"{peer} did not answer request code {code} within {timeout_s:g} s")
        self.peer = peer
        self.code = code
        self.timeout_s = timeout_s


def told_of(fault: Exception) -> tuple[str, Exception | None]:
    """Return what a peer and the log are told of a fault, and whose traceback the log has: a disk's tells nothing."""
    return f"{type(fault).__name__}: {fault}", None if isinstance(fault, OSError) else fault
