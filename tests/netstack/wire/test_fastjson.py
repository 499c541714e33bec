"""The dialect: what fastjson prints and standard JSON is not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netstack.errors import ProtocolError
from netstack.wire import fastjson
from tests.costs import peak, steps

QUEUE_KEY = (("brokerName", "b"), ("queueId", 0), ("topic", "T"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ('{"offsetTable":{0:3,"1":4}}', {"offsetTable": {"0": 3, "1": 4}}),
        ('{{"queueId":0,"topic":"T","brokerName":"b"}:12}', {QUEUE_KEY: 12}),
        ('{{"a":[1,{"b":2}]}:1}', {(("a", (1, (("b", 2),))),): 1}),
        ("{'a':'it\\'s'}", {"a": "it's"}),
        ('{"a":1,}', {"a": 1}),
        ("[1,2.5,-3e2,true,false,null,]", [1, 2.5, -300.0, True, False, None]),
        ('{a:NaN,"b":"x\\u0001\\n\\/\\x41"}', {"a": None, "b": "x\x01\n/A"}),
        (' \ufeff{"a" : {b : []}}\n\n', {"a": {"b": []}}),
        ('{a:"\\ud83d\\ude00\\ud800"}', {"a": "\U0001f600\ufffd"}),
    ],
)
def test_the_dialect_is_read(text: str, value: Any) -> None:
    assert fastjson.loads(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{a:1", "',' or '}' expected at character 4 of 4"),
        ("{a 1}", "':' expected"),
        ("{a:}", "value expected"),
        ("{a:1}}", "text after the end"),
        ("[1 2]", "',' or ']' expected"),
        ('{a:"open', "unterminated string"),
        ("{a:maybe}", "value expected"),
        ("{,:1}", "key expected"),
        ("{a:" * 65 + "1" + "}" * 65, "deeper than 64 levels"),
        ("{a:" + "9" * 401 + "}", "number too long"),
        ("{{{a:1}:1}:1}", "an object as a key inside an object that is itself a key"),
        ("{{a:[{{b:1}:1}]}:1}", "an object as a key inside an object that is itself a key"),
        ("{{a:[9223372036854775808]}:1}", "a number beyond 64 bits in an object that is a key"),
        ("", "value expected"),
    ],
)
def test_what_fastjson_cannot_read_is_a_protocol_error(text: str, says: str) -> None:
    with pytest.raises(ProtocolError) as broken:
        fastjson.loads(text.encode())
    assert says in str(broken.value)


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("$.a", "a"),
        ("$.list[1]", "second"),
        ('$["a"]', "a"),
        ("$.dotted\\\\.name", "dotted"),
        ("$.nowhere.x", None),
        ("$.list[9]", None),
    ],
)
def test_references_lead_to_their_object(reference: str, target: str | None) -> None:
    escaped = reference.replace('"', '\\"')
    text = (
        '{"name":"root","a":{"name":"a"},"list":[0,{"name":"second"}],"dotted.name":{"name":"dotted"},'
        f'"from":{{"it":{{"$ref":"{escaped}"}}}}}}'
    )
    found = fastjson.loads(text.encode())["from"]["it"]
    assert (found and found["name"]) == target


def test_a_reference_to_a_neighbour_is_that_neighbour() -> None:
    assert fastjson.loads(b'[{"x":1},{"$ref":"$[0]"}]') == [{"x": 1}, {"x": 1}]


@pytest.mark.parametrize("reference", ["@", "..", "$", "$.a"])
def test_a_reference_to_what_is_around_it_is_refused(reference: str) -> None:
    with pytest.raises(ProtocolError, match="points to its own container"):
        fastjson.loads(b'{"a":{"b":{"c":{"$ref":"%b"}}}}' % reference.encode().replace(b"@", b"@"))


def test_texts_with_lone_surrogates_are_written_with_a_replacement() -> None:
    assert fastjson.dumps({"a": ["\udcff", 1], "b\udcff": None}) == '{"a":["\ufffd",1],"b\ufffd":null}'.encode()


def test_integers_beyond_64_bits_are_written_as_they_were_read() -> None:
    assert fastjson.dumps(fastjson.loads(b"{a:[%d,%d,1]}" % (10**30, -(10**30)))) == b'{"a":[%d,%d,1]}' % (
        *(10**30, -(10**30)),
    )


def test_a_circle_of_references_is_refused() -> None:
    with pytest.raises(ProtocolError, match="points to its own container"):
        fastjson.loads(b'{"a":{"x":{"$ref":"$.b"}},"b":{"y":{"$ref":"$.a"}}}')


def doubling(levels: int, of: int = 10) -> bytes:
    """Return a text of a few hundred bytes that references make of**levels times as large."""
    rows = [b'"a0":["xxxxxxxxxx"]']
    for level in range(1, levels):
        one = b'{"$ref":"$.a%d"}' % (level - 1)
        rows.append(b'"a%d":[%b]' % (level, b",".join([one] * of)))
    return b"{" + b",".join(rows) + b"}"


def test_references_may_repeat_what_is_small() -> None:
    found = fastjson.loads(doubling(4))
    assert len(fastjson.dumps(found)) > 10_000


def test_what_references_would_make_of_a_text_is_counted_before_it_is_made() -> None:
    with peak() as most, pytest.raises(ProtocolError, match=r"references make \d+ characters .* are allowed"):
        fastjson.loads(doubling(9))
    assert most() < 1 << 20
    with pytest.raises(ProtocolError, match=r"references make \d+"):
        fastjson.loads(b'{"a":"%b","b":[%b]}' % (b"x" * 100_000, b",".join([b'{"$ref":"$.a"}'] * 100)))


def test_without_references_they_are_values_like_others() -> None:
    text = b'{"a":[1],"b":{"$ref":"$.a"}}'
    assert fastjson.loads(text, fastjson.Bounds(referring=0)) == {"a": [1], "b": {"$ref": "$.a"}}


def test_a_text_with_references_has_fewer_values_than_others() -> None:
    many = b'{"a":[%b]%b}'
    ones = b",".join([b"1"] * 20_000)
    assert len(fastjson.loads(many % (ones, b""))["a"]) == 20_000
    with pytest.raises(ProtocolError, match="with references, at most 10000 are allowed"):
        fastjson.loads(many % (ones, b',"b":{"$ref":"$.a"}'))


def test_a_long_reference_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a reference of 2001 characters"):
        fastjson.loads(b'{"a":{"$ref":"$%b"}}' % (b".a" * 1000))


def test_references_are_followed_as_far_as_all_of_them_together_may_lead() -> None:
    text = b'{"a":{"$ref":"$"},"b":[%b]}' % b",".join([b'{"$ref":"$%b"}' % (b".a" * 500)] * 3000)
    with steps() as taken, pytest.raises(ProtocolError, match="references of more than 65536 characters together"):
        fastjson.loads(text)
    assert taken() < 2000


def test_keys_in_keys_are_refused_before_their_text_doubles() -> None:
    text = b"{" * 40 + b"'\\\\':1" + b"}:1" * 39 + b"}"
    with peak() as most, pytest.raises(ProtocolError, match="an object as a key inside"):
        fastjson.loads(text)
    assert most() < 1 << 20


@pytest.mark.parametrize("of", [b"[],", b"{},", b"1,", b'"",'])
def test_values_are_counted_before_they_are_made(of: bytes) -> None:
    text = b"[" + of * ((4 << 20) // len(of) - 2) + b"1]"
    with peak() as most, pytest.raises(ProtocolError, match=r"up to \d+ values in a text, at most 100000 are allowed"):
        fastjson.loads(text)
    assert most() < 1 << 16


def test_maps_keyed_by_objects_leave_raw() -> None:
    assert fastjson.object_map([(b'{"q":0}', b"1"), (b'{"q":1}', b"2")]) == b'{{"q":0}:1,{"q":1}:2}'


@given(st.binary(max_size=80) | st.text(alphabet="{}[]\",:\\u0a1.-e$refnul '").map(str.encode))
def test_random_text_gives_a_value_or_a_protocol_error(text: bytes) -> None:
    try:
        fastjson.dumps(fastjson.loads(text))
    except ProtocolError:
        pass


def test_what_is_read_slowly_has_an_end_and_standard_json_has_none() -> None:
    bare = b"{" + b",".join(b"%d:1" % number for number in range(1000)) + b"}"
    assert len(fastjson.loads(bare)) == 1000
    with pytest.raises(ProtocolError, match="accepted up to 1000 bytes, not 5891"):
        fastjson.loads(bare, fastjson.Bounds(lenient=1000))
    standard = b'{"a":"' + bytes(b"x" * 10_000) + b'"}'
    assert len(fastjson.loads(standard, fastjson.Bounds(lenient=1000))["a"]) == 10_000


def test_references_in_what_is_nested_too_deeply_end_no_stack() -> None:
    deep = b'{"a":' * 900 + b'{"$ref":"$"}' + b"}" * 900
    with pytest.raises(ProtocolError, match="deeper than 64"):
        fastjson.loads(deep)
