"""What concerns a connection of HTTP/2 and no call of it."""

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, PingAckReceived, WindowUpdated

from netstack.errors import ProtocolError
from netstack.grpc.limits import GrpcLimits
from netstack.grpc.link_state import GIVE_BACK, PONG_PAUSE_S, LinkState

NOW, WINDOW = 0.0, 1 << 20


def joined() -> tuple[LinkState, H2Connection]:
    link, client = LinkState(GrpcLimits(), WINDOW), H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.receive_data(link.outgoing(NOW)[0])
    return link, client


def test_pings_are_answered_and_a_goodbye_names_the_latest_call() -> None:
    link, client = joined()
    link.take((6, 0, 0, b"12345678"))
    link.called(1)
    link.say_goodbye(ErrorCodes.NO_ERROR, "why")
    client.ping(b"12345678")
    client.send_headers(1, [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "x")])
    pong, goodbye = client.receive_data(link.outgoing(NOW)[0])
    assert isinstance(pong, PingAckReceived)
    assert isinstance(goodbye, ConnectionTerminated)
    assert (goodbye.last_stream_id, goodbye.additional_data) == (1, b"why")


def test_the_window_is_given_back_many_messages_at_a_time() -> None:
    link, client = joined()
    link.received(GIVE_BACK - 1)
    link.widen()
    assert link.outgoing(NOW) == (b"", 0)
    link.received(1)
    link.widen()
    (event,) = client.receive_data(link.outgoing(NOW)[0])
    assert isinstance(event, WindowUpdated)
    assert event.delta == GIVE_BACK
    link.received(WINDOW)
    with pytest.raises(ProtocolError, match="window"):
        link.received(1)


def test_a_frame_that_is_none_ends_the_connection() -> None:
    with pytest.raises(ProtocolError, match="HTTP/2"):
        joined()[0].take((4, 0, 0, bytes(5)))


def test_settings_that_mean_nothing_are_not_remembered() -> None:
    link, _ = joined()
    for first in range(16, 65_536, 2700):
        names = range(first, min(first + 2700, 65_536))
        link.take((4, 0, 0, b"".join(name.to_bytes(2, "big") + bytes(4) for name in names)))
    link.take((4, 0, 0, b"\x00\x04" + (1000).to_bytes(4, "big")))
    assert link.first_window == 1000
    assert len(link._h2.remote_settings) < 10


def test_a_ping_that_is_none_and_one_that_answers_are_told_apart() -> None:
    link, _ = joined()
    link.take((6, 1, 0, b"12345678"))
    assert link.outgoing(NOW) == (b"", 0)
    for number, payload in ((0, b"1234"), (1, b"12345678")):
        with pytest.raises(ProtocolError, match="HTTP/2"):
            joined()[0].take((6, 0, number, payload))


def test_pings_are_answered_now_and_then_all_of_them() -> None:
    link, _ = joined()
    link.take((6, 0, 0, b"first..."))
    assert b"first..." in link.outgoing(NOW)[0]
    for payload in (b"second..", b"third..."):
        link.take((6, 0, 0, payload))
    link.put(b"an answer")
    assert link.outgoing(NOW) == (b"an answer", 1)
    assert link.pong_at == NOW + PONG_PAUSE_S
    sent, frames = link.outgoing(NOW + PONG_PAUSE_S)
    assert (b"second.." in sent, b"third..." in sent, frames) == (True, True, 0)
    assert link.pong_at is None


def test_what_may_be_sent_follows_what_calls_have_used_and_what_the_client_grants() -> None:
    link, _ = joined()
    link.spend(65_535)
    link.take((8, 0, 0, ((1 << 31) - 1).to_bytes(4, "big")))
    assert link.window == (1 << 31) - 1
    link.take((4, 0, 0, b"\x00\x04" + (100_000).to_bytes(4, "big")))
    assert link.first_window == 100_000
    with pytest.raises(ProtocolError, match="HTTP/2"):
        link.take((8, 0, 0, (1).to_bytes(4, "big")))
