import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.record import decode_properties
from uplink_spark.jobs.testing import Sample, raw_piece, records
from uplink_spark.spark.properties import Properties, split_keys
from uplink_spark.spark.rows import RowSelection, decode


def check(stored: list[str | None]) -> Properties:
    """Compare with the store's decoder row by row."""
    found = Properties(pa.array(stored, pa.string()))
    found.maps.validate(full=True)
    rows = [None if text is None else decode_properties(text) for text in stored]
    maps = found.maps.to_pylist()
    assert [pairs and dict(pairs) for pairs in maps] == [row if row is None else (row or []) for row in rows]
    assert all(pairs is None or len(pairs) == len(dict(pairs)) for pairs in maps)
    for name in ("KEYS", "ß", "absent"):
        assert found.value_of(name).to_pylist() == [None if row is None else row.get(name) for row in rows]
    keys = split_keys(found.value_of("KEYS"))
    keys.validate(full=True)
    values = [row.get("KEYS") if row else None for row in rows]
    assert keys.to_pylist() == [None if value is None else value.split() for value in values]
    return found


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.sampled_from(["KEYS", "ß", "a", "TAGS"]), min_size=1, max_size=4, unique=True))
def test_rows_that_are_alike_but_for_one_place_equal_the_one_by_one_decoder(
    data: st.DataObject, names: list[str]
) -> None:
    words, closed = st.text("ab ü", min_size=1, max_size=4), data.draw(st.sampled_from(["", "\x02"]))
    values = st.tuples(*[words] * len(names))
    stored = [
        "\x02".join(f"{name}\x01{value}" for name, value in zip(names, row, strict=True)) + closed
        for row in data.draw(st.lists(values, min_size=1, max_size=5))
    ]
    assert check([*stored])._alike == check([*stored])._alike is not None
    odd = data.draw(st.integers(0, len(stored) - 1))
    at, until = sorted(data.draw(st.tuples(*[st.integers(0, len(stored[odd]))] * 2)))
    stored[odd] = stored[odd][:at] + data.draw(st.text("\x00\x01\x02a", max_size=2)) + stored[odd][until:]
    check([*stored])
    check([*stored, None])


@pytest.mark.parametrize(
    "stored",
    [
        ["a\x01x\x02", "a\x01x", "a\x01x\x02"],  # closed or not
        ["a\x01x\x02KEY", "S\x01y\x02KEY", "S\x01z\x02KEYS"],  # a name that runs over the border of two rows
        ["a\x01x\x02a\x01y", "a\x01x\x02a\x01y"],  # a name twice
        ["a\x02\x01x", "a\x02\x01x"],
        ["\x01x\x02", "\x01x\x02"],  # no name
        ["a\x01\x02", "a\x01\x02"],  # no value
        ["a\x01x\x01y", "a\x01x\x01y"],  # 01 in a value
        ["a\x00x\x02", "a\x00x\x02"],
        ["a\x01x\x02", "a\x01x\x01"],  # 01 where 02 closes
        ["a\x01x\x02b\x01y", "b\x01y\x02a\x01x"],  # another order
        ["", ""],
        [None, None],
    ],
)
def test_rows_that_only_look_alike_are_cut_one_by_one(stored: list[str | None]) -> None:
    assert check(stored)._alike is None


def test_the_trace_of_a_message_is_a_column_whichever_tracer_wrote_it() -> None:
    parent, jaeger = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a3ce929d0e0e4736:f067aa0ba902b7:0:1"
    carried: list[dict[str, str]] = [
        {"traceparent": parent, "tracestate": "rojo=1", "uber-trace-id": "1:2:0:1"},
        {"uber-trace-id": jaeger},
        {"uber-trace-id": jaeger.replace(":", "%3A")},
        {"b3": "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1"},
        {"X-B3-TraceId": "463AC35C9F6413AD", "X-B3-SpanId": "a2fb4a1d1a96d312"},
        {"traceparent": "nonsense"},
        {},
    ]
    view = RowSelection(columns=("traceparent", "trace_id", "properties"))
    rows = decode([raw_piece(records([Sample(properties=each) for each in carried]))], view).to_pylist()
    assert [dict(row["properties"]) for row in rows] == carried  # untouched
    assert [row["traceparent"] for row in rows] == [each.get("traceparent") for each in carried]
    short = "a3ce929d0e0e4736".rjust(32, "0")
    ids = [parent[3:35], short, short, "80f198ee56343ba864fe8b2a57d3eff7", "463ac35c9f6413ad".rjust(32, "0")]
    assert [row["trace_id"] for row in rows] == [*ids, None, None]
