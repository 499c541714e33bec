import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netstack.errors import ProtocolError
from netstack.serving.governor import Governor
from netstack.serving.peer import Peer
from netstack.testing import connected, read_commands
from netstack.wire.command import RemotingCommand, decode_command
from netstack.wire.conversation import Answer, Reply
from netstack.wire.frame import BINARY, JSON, Frame, encode_frame
from netstack.wire.header_cache import MOST_REMEMBERED, HeaderCache
from netstack.wire.message_headers import SendMessageHeader

# As the stock Java client 4.9.7 wrote it.
JAVA = (
    b'{"code":310,"extFields":{"a":"load","b":"bench_x","c":"TBW102","d":"4","e":"0","f":"0","g":"1795274737760",'
    b'"h":"0","i":"UNIQ_KEY\\u0001FD000000000000000000000000000002698330946E096A4EA0600005\\u0002WAIT\\u0001true",'
    b'"j":"0","k":"false","m":"false","n":"vm"},"flag":0,"language":"JAVA","opaque":16,'
    b'"serializeTypeCurrentRPC":"JSON","version":407}'
)


def like_java(opaque: int = 16, born_ms: int = 1795274737760, properties: str = "", **changed: str) -> bytes:
    """Return a header as Java would write it, with other values."""
    whole = orjson.loads(JAVA)
    whole["extFields"].update({"g": str(born_ms), "i": properties, **changed})
    whole["opaque"] = opaque
    return orjson.dumps(whole)


def both(seen: HeaderCache, header: bytes, body: bytes = b"body") -> SendMessageHeader | None:
    """Decode in both ways, which must agree, and return what was read ahead."""
    frame = Frame(JSON, header, body)
    command, parsed = seen.decode(frame), decode_command(frame)
    if command.send is not None:
        parsed.send, parsed.ext = SendMessageHeader.from_ext(parsed.ext), {}
    assert command == parsed
    return command.send


def test_from_the_second_on_a_header_is_known() -> None:
    seen = HeaderCache()
    assert both(seen, JAVA) is None
    assert both(seen, JAVA.replace(b'"opaque":16', b'"opaque":17')) is not None
    assert both(seen, JAVA.replace(b"1795274737760", b"1795274737761").replace(b"A0600005", b"A0600006")) is not None
    assert both(seen, JAVA.replace(b'"e":"0"', b'"e":"1"')) is None  # another queue
    assert both(seen, JAVA.replace(b'"e":"0"', b'"e":"1"')) is not None
    assert both(seen, JAVA.replace(b'"code":310', b'"code":320').replace(b'"m":"false"', b'"m":"true"')) is None


@pytest.mark.slow
@given(
    st.lists(
        st.builds(
            like_java,
            st.integers(-(2**31), 2**31 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.text() | st.text('\x01\x02\\"{},:u0"j') | st.text("aB\x01\x02"),
            e=st.sampled_from(("0", "1", "-1", "x", "")),
            a=st.sampled_from(("load", 'lo"ad', "gr}up", "Gruppe ü")),
        ),
        max_size=10,
    )
)
def test_what_is_looked_up_says_the_same_as_what_is_parsed(headers: list[bytes]) -> None:
    seen = HeaderCache()
    for header in headers:
        both(seen, header)


@pytest.mark.parametrize(
    "header",
    [
        like_java(AccessKey="me", Signature="c2lnbg=="),
        JAVA.replace(b'"opaque"', b'"remark":"why","opaque"'),
        JAVA.replace(b"UNIQ_KEY", b'with \\" in it'),
        JAVA.replace(b'"d":"4"', b'"d":"99999999999"'),
        JAVA.replace(b'"code":310', b'"code":10'),
        JAVA.replace(b'"opaque":16', b'"opaque":-16'),
        JAVA.replace(b'"serializeType', b'"extFields":null,"serializeType'),
        like_java(b="t" * 800),
    ],
)
def test_what_is_signed_or_unusual_is_parsed_every_time(header: bytes) -> None:
    seen = HeaderCache()
    for _ in range(3):
        assert both(seen, header) is None


@pytest.mark.parametrize("name", [b"S\\u0043HL\\u00fcssel", "Schlüssel".encode(), b"\\ud83d\\ude00", b"\\/\\\\\\n"])
def test_properties_in_any_script_and_spelling_are_those_that_were_sent(name: bytes) -> None:
    seen = HeaderCache()
    both(seen, JAVA)
    assert both(seen, JAVA.replace(b"UNIQ_KEY", name)) is not None


def test_what_is_no_header_is_refused_in_the_ordinary_way() -> None:
    for header in (b"", b"{", JAVA[:-1], JAVA + b"}"):
        with pytest.raises(ProtocolError):
            HeaderCache().decode(Frame(JSON, header, b""))
    with pytest.raises(ProtocolError):
        HeaderCache().decode(Frame(BINARY, JAVA[:20], b""))
    with pytest.raises(ProtocolError):
        HeaderCache(max_ext=3).decode(Frame(JSON, JAVA, b""))


def test_memory_is_bounded_and_what_was_seen_last_is_known() -> None:
    seen = HeaderCache()
    for number in range(MOST_REMEMBERED + 100):
        both(seen, like_java(b=f"topic{number}"))
        assert len(seen._seen) <= MOST_REMEMBERED
    assert both(seen, like_java(b=f"topic{number - 50}")) is not None
    assert both(seen, like_java(b="topic50")) is None


async def test_what_one_connection_sent_is_known_of_the_next() -> None:
    governor, known = Governor(), list[bool]()

    def note(command: RemotingCommand, peer: Peer) -> Answer:
        known.append(command.send is not None)
        return Reply(command.reply())

    for opaque in (1, 2):
        async with connected(note, governor) as (_, stream):
            await stream.send_all(encode_frame(JSON, like_java(opaque), b"x"))
            await read_commands(stream, 1)
    assert known == [False, True]


@pytest.mark.pure
def test_what_one_message_says_is_not_kept() -> None:
    seen = HeaderCache()
    header = like_java(properties="KEYS\1" + "order-4711 " * 200)
    assert both(seen, header) is None
    assert "order-4711" not in repr(vars(seen))
    assert both(seen, header) is not None
