"""How much one gRPC connection may take; what all of them share is in `netstack.serving.limits`."""

from typing import NamedTuple

KIB, MIB = 1 << 10, 1 << 20


class GrpcLimits(NamedTuple):
    message_bytes: int = 4 * MIB + 64 * KIB
    header_bytes: int = 16 * KIB  # of one call, packed and unpacked
    streams: int = 1024  # calls of one connection at once: receivers of a client wait on one connection, as do its acks
    window_bytes: int = 65_535  # what a call may send before it is granted more; that of HTTP/2
    uploads_bytes: int = 32 * MIB  # granted beyond the window, of all connections together
    partial_s: float = 30.0  # from the first byte of a message, or its grant, to its last
    blocked_bytes: int = 512 * KIB  # answers that wait for the client's window; above it new calls are refused
    resets_burst: int = 200  # calls taken back by the client
    resets_per_s: float = 50.0
    control_burst: int = 400  # frames that carry nothing: settings, pings, priorities, windows, empty data
    control_per_s: float = 100.0
    control_per_frame: float = 4.0  # allowed in addition for each frame that this side sent
