"""What one connection may take stays below what all together may."""

from netstack.grpc.limits import GrpcLimits
from netstack.serving.limits import Limits


def test_one_connection_cannot_fill_what_all_share() -> None:
    own, shared = GrpcLimits(), Limits()
    assert own.message_bytes < own.uploads_bytes // 4
    assert own.blocked_bytes < shared.unsent_bytes
    assert own.message_bytes >= 4 << 20, "a body of limits.message_mib and its properties fit"
