"""What all ext headers have in common: names, widths, what is required."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from netstack.errors import Refused
from netstack.wire.ext import ExtHeader, Int32, fields_of


@dataclass(frozen=True, slots=True)
class Sample(ExtHeader):
    queue_id: Int32
    odd_one: Annotated[int, "ODDOne"]
    name: str
    flag: bool = False
    narrow: Annotated[Int32 | None, "nARROW"] = None


FULL = {"queueId": "1", "ODDOne": "-9000000000", "name": "n", "flag": "true", "nARROW": "7"}


def test_names_follow_the_attributes_unless_spelled_out() -> None:
    assert [item.wire for item in fields_of(Sample)] == list(FULL)
    assert Sample.from_ext(FULL) == Sample(1, -9000000000, "n", True, 7)
    assert Sample.from_ext(FULL).to_ext() == FULL


def test_booleans_are_true_only_when_they_say_so() -> None:
    assert [Sample.from_ext({**FULL, "flag": text}).flag for text in ("true", "TRUE", "1", "yes", "")] == [
        *(True, True, False, False, False),
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"queueId": ""}, "required field queueId is missing"),
        ({"queueId": "2147483648"}, "field queueId is '2147483648', expected a 32 bit number"),
        ({"nARROW": "x"}, "field nARROW is 'x', expected a 32 bit number"),
        ({"ODDOne": "1e3"}, "field ODDOne is '1e3', expected a 64 bit number"),
        ({"ODDOne": "y" * 500}, "field ODDOne is 'y{60}', expected"),
    ],
)
def test_refusals_name_the_field_and_what_it_holds(change: dict[str, str], says: str) -> None:
    with pytest.raises(Refused, match=says) as refused:
        Sample.from_ext({**FULL, **change})
    assert refused.value.code == 1


def test_required_text_may_be_empty_but_not_absent() -> None:
    assert Sample.from_ext({**FULL, "name": ""}).name == ""
    with pytest.raises(Refused, match="required field name is missing"):
        Sample.from_ext({name: text for name, text in FULL.items() if name != "name"})
