"""The reader of what is no standard JSON; what it takes beyond that is shown by the tests of `fastjson`."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netstack.wire import fastjson, lenient_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 62) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.slow
@given(json_values)
def test_the_lenient_reader_agrees_with_the_strict_one(value: Any) -> None:
    assert lenient_json.read(fastjson.dumps(value).decode()) == value
