"""RELAY: golden bytes, both ends come through, and what no member sends is refused."""

import pytest

from appliance.group.links.frames import RELAY, LinkFrame, LinkFrameDecoder, encode_frame
from appliance.group.relay.relay_frame import RelayedClient, decode_relay
from uplink_spark.errors import ProtocolError

CLIENT = RelayedClient(("10.1.0.77", 40_001), ("10.1.0.12", 8081), tls=True)
FIELDS = {"host": "10.1.0.77", "port": 1, "at": "10.1.0.12", "at_port": 8081, "tls": 0}


def test_the_frame_has_these_bytes_and_comes_back() -> None:
    frame = CLIENT.encode()
    assert frame[:7].hex(" ") == "00 00 00 38 42 00 35"
    assert frame[7:] == (
        b"\xa5\x62at\x6910.1.0.12\x63tls\x01\x64host\x6910.1.0.77\x64port\x19\x9c\x41\x67at_port\x19\x1f\x91"
    )
    [read] = LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset()).feed(frame)
    assert decode_relay(read) == CLIENT
    v6 = RelayedClient(("2001:db8::7", 1), ("2001:db8::1", 2))
    [read] = LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset()).feed(v6.encode())
    assert decode_relay(read) == v6


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "press.example"},
        {"host": ""},
        {"at": "10.1.0.12:8081"},
        {"host": "1" * 60_000},
        {"host": "::ffff:10.1.0.77"},  # the same as 10.1.0.77, and no loopback to those who ask
        {"host": "fe80::1%eth0"},
        {"host": 7},
        {"port": 65_536},
        {"at_port": -1},
        {"tls": 2},
    ],
)
def test_what_is_no_address_is_refused(wrong: dict[str, object]) -> None:
    made = encode_frame(RELAY, {**FIELDS, **wrong})
    [frame] = LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset()).feed(made)
    with pytest.raises(ProtocolError, match="RELAY"):
        decode_relay(frame)
    for key in FIELDS:
        [less] = LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset()).feed(
            encode_frame(RELAY, {name: value for name, value in FIELDS.items() if name != key})
        )
        with pytest.raises(ProtocolError):
            decode_relay(less)
    with pytest.raises(ProtocolError):
        decode_relay(LinkFrame(RELAY, b"\xff\xff"))


def test_an_address_has_one_spelling() -> None:
    made = encode_frame(RELAY, {**FIELDS, "host": "2001:0DB8:0:0:0:0:0:7"})
    [frame] = LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset()).feed(made)
    assert decode_relay(frame).remote == ("2001:db8::7", 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1"])
def test_a_program_of_the_members_box_is_none_of_this_one(host: str) -> None:
    client = RelayedClient((host, 5), (host, 8081))
    assert client.seen_from("10.1.0.12") == RelayedClient(("10.1.0.12", 5), (host, 8081), tls=True)
    assert CLIENT.seen_from("10.1.0.12") == CLIENT
