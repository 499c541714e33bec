"""Headers in both forms, compared byte for byte with what the Java 4.9.8 encoder made."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netstack.errors import ProtocolError
from netstack.wire.command import RemotingCommand, decode_command, encode_command, request
from netstack.wire.frame import JSON, Frame, FrameDecoder, encode_frame
from tests.costs import peak
from tests.netstack.samples import SEND_EXT

REPLY_EXT = {
    "msgId": "7F00000100002A9F0000000000000000",
    "queueId": "3",
    "queueOffset": "42",
    "TRACE_ON": "true",
    "MSG_REGION": "DefaultRegion",
}
NO_ROUTE = "No topic route info in name server for the topic: X"
ROUTE = RemotingCommand(105, 7, ext={"topic": "TopicTest"})
SENT = RemotingCommand(0, 258, 1, ext=REPLY_EXT)
ERROR = RemotingCommand(17, -1, 3, remark=NO_ROUTE)
DONE = RemotingCommand(0, 3, 1)
SEND = RemotingCommand(310, 9, version=409, ext=SEND_EXT, body=b"hello")

J1 = "00000087000000837b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22546f70696354657374227d2c22666c6167223a302c226c616e6775616765223a224a415641222c226f7061717565223a372c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3430397d"  # noqa: E501
J2 = "000000ee000000ea7b22636f6465223a302c226578744669656c6473223a7b2271756575654964223a2233222c2254524143455f4f4e223a2274727565222c224d53475f524547494f4e223a2244656661756c74526567696f6e222c226d73674964223a223746303030303031303030303241394630303030303030303030303030303030222c2271756575654f6666736574223a223432227d2c22666c6167223a312c226c616e6775616765223a224a415641222c226f7061717565223a3235382c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3430397d"  # noqa: E501
J3 = "000000a4000000a07b22636f6465223a31372c22666c6167223a332c226c616e6775616765223a224a415641222c226f7061717565223a2d312c2272656d61726b223a224e6f20746f70696320726f75746520696e666f20696e206e616d652073657276657220666f722074686520746f7069633a2058222c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3430397d"  # noqa: E501
B1 = "0000002d010000290069000199000000070000000000000000000000140005746f70696300000009546f70696354657374"
B2 = "000000940100009000000001990000010200000001000000000000007b00056d736749640000002037463030303030313030303032413946303030303030303030303030303030300007717565756549640000000133000b71756575654f6666736574000000023432000854524143455f4f4e0000000474727565000a4d53475f524547494f4e0000000d44656661756c74526567696f6e"  # noqa: E501
B3 = "0000004c010000480011000199ffffffff00000003000000334e6f20746f70696320726f75746520696e666f20696e206e616d652073657276657220666f722074686520746f7069633a205800000000"  # noqa: E501
B4 = "0000001901000015000000019900000003000000010000000000000000"
B5 = "000000b8010000af01360001990000000900000000000000000000009a00016100000002504700016200000009546f70696354657374000163000000065442573130320001640000000134000165000000013100016600000001300001670000000d3137303030303030303030303000016800000001300001690000000a5441475301546167410200016a000000013000016b0000000566616c736500016d0000000566616c736500016e0000000862726f6b65722d6168656c6c6f"  # noqa: E501


def binary(command: RemotingCommand) -> RemotingCommand:
    return RemotingCommand(
        command.code, command.opaque, command.flag, command.language, command.version, command.remark, command.ext,
        command.body, 1,
    )  # fmt: skip


def decode(data: bytes) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(data)
    frame = decoder.next_frame()
    assert frame is not None
    return decode_command(frame)


def decode_json(text: str | bytes) -> RemotingCommand:
    return decode_command(Frame(0, text if isinstance(text, bytes) else text.encode(), b""))


@pytest.mark.parametrize(("command", "golden"), [(ROUTE, J1), (ERROR, J3)])
def test_json_frames_equal_javas(command: RemotingCommand, golden: str) -> None:
    assert encode_command(command).hex() == golden
    assert decode(bytes.fromhex(golden)) == command


def test_a_send_reply_equals_javas_but_for_the_order_of_its_fields() -> None:
    ours, java = encode_command(SENT), bytes.fromhex(J2)
    assert (len(ours), ours[:8], json.loads(ours[8:])) == (len(java), java[:8], json.loads(java[8:]))
    assert decode(java) == SENT


def test_an_empty_success_is_103_bytes() -> None:
    frame = encode_command(DONE)
    assert frame[:8].hex() == "000000630000005f"
    assert frame[8:] == (
        b'{"code":0,"flag":1,"language":"JAVA","opaque":3,"serializeTypeCurrentRPC":"JSON","version":409}'
    )


@pytest.mark.parametrize(("command", "golden"), [(ROUTE, B1), (SENT, B2), (ERROR, B3), (DONE, B4), (SEND, B5)])
def test_binary_frames_equal_javas(command: RemotingCommand, golden: str) -> None:
    assert encode_command(binary(command)).hex() == golden
    assert decode(bytes.fromhex(golden)) == binary(command)


def test_a_send_in_json_is_288_bytes_and_escapes_its_property_marks() -> None:
    frame = encode_command(SEND)
    assert (len(frame), frame[:8].hex()) == (288, "0000011c00000113")
    assert rb'"i":"TAGS\u0001TagA\u0002"' in frame


def test_an_answer_takes_opaque_and_header_form_from_its_request() -> None:
    asked = RemotingCommand(105, 41, flag=4, language="GO", version=317, serialize_type=1)
    assert asked.reply(17, "why", {"k": "v"}, b"body") == RemotingCommand(
        17, 41, 1, remark="why", ext={"k": "v"}, body=b"body", serialize_type=1
    )


def test_numbers_and_booleans_in_ext_fields_become_their_text() -> None:
    command = decode_json(
        '{"code":15,"extFields":{"queueId":0,"commitOffset":-1,"unitMode":false,"born":1700000000000,"no":null},'
        '"flag":0,"language":"JAVA","opaque":5,"version":121}\n'
    )
    assert command.ext == {"queueId": "0", "commitOffset": "-1", "unitMode": "false", "born": "1700000000000"}
    assert (command.code, command.opaque, command.version) == (15, 5, 121)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ('{"code":"34","opaque":1}', "code", 34),
        ('{"code":34,"opaque":null}', "opaque", 0),
        ('{code:34,opaque:2,extFields:{topic:"T"}}', "ext", {"topic": "T"}),
        ("{'code':34,'opaque':2,'remark':'r'}", "remark", "r"),
        ('{"code":34,"language":"go"}', "language", "GO"),
        ('{"code":34,"language":9}', "language", "GO"),
        ('{"code":34,"language":"ELIXIR"}', "language", "OTHER"),
        ('{"code":34,"language":["GO"]}', "language", "OTHER"),
        ('{"code":34,"extFields":null}', "ext", {}),
        ('{"code":34,"unknown":{"x":[1]},"serializeTypeCurrentRPC":"JSON"}\n\n', "code", 34),
        (b'{"code":34,"remark":"\xff"}', "remark", "\ufffd"),
        (r'{"code":34,"remark":"\ud83d\ude00 \ud800"}', "remark", "\U0001f600 \ufffd"),
    ],
)
def test_what_lenient_java_reads_is_read(text: str | bytes, field: str, value: object) -> None:
    assert getattr(decode_json(text), field) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "7", '"x"', "{", "{]", '{"code":{}}', '{"code":"x"}', '{"code":3000000000}', '{"extFields":[1]}'),
        *('{"code":1e999}', "{" * 5000, '{"code":' + "9" * 5000 + "}", '{"extFields":"x"}', '{"a" 1}'),
        '{"extFields":{' + ",".join(f'"k{n}":"v"' for n in range(257)) + "}}",
    ],
)
def test_a_json_header_that_java_could_not_read_is_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_json(text)


def entry(key: bytes, value: bytes) -> bytes:
    return len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value


def binary_header(entries: bytes, ext_size: int | None = None, language: int = 0) -> bytes:
    size = len(entries) if ext_size is None else ext_size
    return b"\x00\x22" + bytes([language]) + b"\x01\x99" + bytes(12) + size.to_bytes(4, "big", signed=True) + entries


def test_binary_duplicates_last_wins_and_empty_values_are_absent() -> None:
    header = binary_header(entry(b"k", b"1") + entry(b"k", b"2") + entry(b"e", b""), language=200)
    command = decode_command(Frame(1, header, b""))
    assert (command.ext, command.language, command.code) == ({"k": "2"}, "OTHER", 34)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        bytes(20),
        binary_header(entry(b"k", b"v"), ext_size=9),
        binary_header(entry(b"k", b"v"), ext_size=-1),
        binary_header(b"\x00"),
        binary_header(b"\x00\x09k"),
        binary_header(b"\x00\x01k\x7f\xff\xff\xffv"),
        binary_header(b"".join(entry(b"%d" % n, b"v") for n in range(257))),
        binary_header(entry(b"", b"") * 513),
        b"\x00\x22\x00\x01\x99" + bytes(8) + b"\xff\xff\xff\xff" + bytes(8),
    ],
)
def test_a_binary_header_with_wrong_lengths_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_command(Frame(1, header, b""))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
filled = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
commands = st.builds(
    RemotingCommand,
    code=st.integers(-32768, 32767),
    opaque=int32,
    flag=int32,
    language=st.sampled_from(["JAVA", "CPP", "GO", "RUST", "NODE_JS", "OTHER"]),
    version=st.integers(0, 1000),
    remark=st.none() | filled,
    ext=st.dictionaries(texts, filled, max_size=20),
    body=st.binary(max_size=100),
    serialize_type=st.sampled_from([0, 1]),
)


@pytest.mark.slow
@given(commands)
def test_every_command_survives_the_wire(command: RemotingCommand) -> None:
    assert decode(encode_command(command)) == command


@given(st.sampled_from([0, 1]), st.binary(max_size=200))
def test_a_random_header_gives_a_command_or_a_protocol_error(kind: int, header: bytes) -> None:
    try:
        command = decode_command(Frame(kind, header, b""))
    except ProtocolError:
        return
    encode_command(command.reply(1, "x", command.ext))


@pytest.mark.slow
@given(st.sampled_from([J1, J2, J3, B1, B2, B3, B5]), st.data())
def test_a_damaged_real_header_gives_a_command_or_a_protocol_error(golden: str, data: st.DataObject) -> None:
    frame = bytearray(bytes.fromhex(golden))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        command = decode(bytes(frame))
    except ProtocolError:
        return
    assert all(type(text) is str for pair in command.ext.items() for text in pair)
    encode_command(command.reply(0, None, command.ext))


def test_lone_surrogates_in_a_remark_do_not_stop_the_answer() -> None:
    assert decode(encode_command(DONE.reply(1, "bad \udcff name"))).remark == "bad \ufffd name"


def test_requests_have_no_response_bit_and_oneway_sets_bit_one() -> None:
    assert (request(34).flag, request(15, {"topic": "T"}, oneway=True).flag) == (0, 2)
    assert request(15, {"topic": "T"}, oneway=True).is_oneway
    assert not request(34).is_response


def test_frames_are_compact_whatever_the_values_hold() -> None:
    frame = encode_frame(0, b"{}", b"")
    assert frame.hex() == "00000006000000027b7d"


def bomb(levels: int = 8) -> bytes:
    """Return a header of some 2,000 bytes whose references would make 2.7 GB of it."""
    rows = [b'"a0":[%b]' % b",".join([b'"xxxxxxxxxx"'] * 10)]
    for level in range(1, levels):
        one = b'{"$ref":"$.extFields.a%d"}' % (level - 1)
        rows.append(b'"a%d":[%b]' % (level, b",".join([one] * 10)))
    return b'{"code":105,"extFields":{%b},"flag":0,"language":"JAVA","opaque":1,"version":409}' % b",".join(rows)


def test_references_in_a_header_are_text_like_all_else() -> None:
    header = bomb()
    assert len(header) < 2200
    with peak() as most:
        command = decode_command(Frame(JSON, header, b""))
    assert command.ext["a7"].startswith('[{"$ref":"$.extFields.a6"},')
    assert sum(map(len, command.ext.values())) < len(header)
    assert most() < 1 << 18


def test_keys_in_keys_of_a_header_are_refused_before_their_text_doubles() -> None:
    keys = b"{" * 40 + b"'\\\\':1" + b"}:1" * 39 + b"}"
    with peak() as most, pytest.raises(ProtocolError, match="an object as a key inside"):
        decode_command(Frame(JSON, b'{"code":105,"extFields":{"a":%b}}' % keys, b""))
    assert most() < 1 << 20
