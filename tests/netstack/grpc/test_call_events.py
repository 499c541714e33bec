"""What a client's bytes mean."""

from netstack.grpc.call_events import Received


def test_a_message_is_not_the_last_unless_it_is_said() -> None:
    assert not Received(1, b"x").last
