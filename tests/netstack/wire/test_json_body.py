"""What all bodies have in common, shown on a body of its own."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import pytest

from netstack.errors import Refused
from netstack.wire.json_body import Body, MessageQueue, encode


class Colour(StrEnum):
    RED = "RED"
    BLUE = "BLUE"


@dataclass(frozen=True, slots=True)
class Part(Body):
    queue_count: int = 0


@dataclass(frozen=True, slots=True)
class Sample(Body):
    name: str
    is_open: bool = False
    ratio: float = 0.0
    odd: Annotated[int, "ODDName"] = 0
    colour: Colour = Colour.RED
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    by_id: dict[int, Part] = field(default_factory=dict)
    by_queue: dict[MessageQueue, int] = field(default_factory=dict)
    any_thing: Any = None


def test_fields_are_sorted_by_their_wire_names_and_absent_ones_left_out() -> None:
    sample = Sample("n", True, 1.5, 7, Colour.BLUE, Part(1), (Part(2),), {3: Part(4)}, {MessageQueue("T", "b", 0): 5})
    assert sample.to_bytes() == (
        b'{"ODDName":7,"byId":{"3":{"queueCount":4}},"byQueue":{{"brokerName":"b","queueId":0,"topic":"T"}:5},'
        b'"colour":"BLUE","isOpen":true,"name":"n","part":{"queueCount":1},"parts":[{"queueCount":2}],"ratio":1.5}'
    )
    assert Sample.from_bytes(sample.to_bytes()) == sample
    assert b'"part"' not in Sample("n").to_bytes()


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ('{"name":5}', "name", "5"),
        ('{"name":"n","isOpen":"TRUE"}', "is_open", True),
        ('{"name":"n","isOpen":1}', "is_open", True),
        ('{"name":"n","ODDName":"12"}', "odd", 12),
        ('{"name":"n","ODDName":null}', "odd", 0),
        ('{"name":"n","ratio":"2.5"}', "ratio", 2.5),
        ('{"name":"n","colour":1}', "colour", Colour.BLUE),
        ('{"name":"n","colour":"0"}', "colour", Colour.RED),
        ('{"name":"n","parts":[null,{"queueCount":2,"more":1}]}', "parts", (Part(2),)),
        ('{"name":"n","byId":{7:{}}}', "by_id", {7: Part()}),
        ('{"name":"n","anyThing":{"a":[1]}}', "any_thing", {"a": [1]}),
    ],
)
def test_values_are_read_as_leniently_as_java_does(text: str, attribute: str, value: object) -> None:
    assert getattr(Sample.from_bytes(text.encode()), attribute) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "Sample lacks one of name"),
        ('{"name":"n","ODDName":[]}', r"ODDName: '\[\]' where a number"),
        ('{"name":"n","ODDName":9223372036854775808}', "does not fit 64 bits"),
        ('{"name":"n","ratio":"x"}', "ratio: 'x' where a number"),
        ('{"name":"n","part":[]}', "part: Part is list, not an object"),
        ('{"name":"n","byId":{"x":{}}}', "byId: 'x' where a number"),
        ('{"name":"n","byId":[]}', "byId: list where an object"),
        ('{"name":"n","byQueue":{"x":1}}', "expected a JSON value"),
        ('{"name":"n","byQueue":{"7":1}}', "int where a queue"),
        ('{"name":"n","anyThing":{"$ref":"$"}}', "a reference points to its own container"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        Sample.from_bytes(text.encode())


def test_trees_of_plain_values_are_encoded_too() -> None:
    assert encode({"a": [Part(1), MessageQueue("T", "b", 2)], 3: "x\udcff"}) == (
        '{"a":[{"queueCount":1},{"brokerName":"b","queueId":2,"topic":"T"}],"3":"x\ufffd"}'.encode()
    )
