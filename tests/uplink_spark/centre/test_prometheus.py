"""Prometheus' text format: values, labels and histograms as its parser reads them."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from uplink_spark.centre.histogram import BUCKETS_S, Histogram
from uplink_spark.centre.prometheus import counter_lines, histogram_lines, sample


def test_label_values_are_escaped() -> None:
    assert sample("x", 1, {"box": 'a"b\\c\nd'}) == r'x{box="a\"b\\c\nd"} 1'


def test_a_histogram_counts_up_to_each_edge() -> None:
    lines = histogram_lines("h", [Histogram([0.004]), Histogram([0.2, 9.0])])
    assert 'h_bucket{le="0.005"} 1' in lines
    assert 'h_bucket{le="0.25"} 2' in lines
    assert 'h_bucket{le="+Inf"} 3' in lines
    assert "h_count 3" in lines
    assert "h_sum 9.204" in lines


@pytest.mark.parametrize("text", ['a"b\\c\nd', "\\n", "", "ü → 界", "}{,="])
def test_any_text_comes_back_from_the_parser(text: str) -> None:
    lines = "\n".join(counter_lines("x_total", "box", {text: 3})) + "\n"
    (family,) = text_string_to_metric_families(lines)
    assert [(one.labels, one.value) for one in family.samples] == [({"box": text}, 3.0)]


@pytest.mark.parametrize("value", [0, 1 << 60, 0.5, -1.0, 1e-9, 123456789.25, math.inf])
def test_a_value_is_written_as_it_is(value: float) -> None:
    (family,) = text_string_to_metric_families(sample("x", value) + "\n")
    assert family.samples[0].value == pytest.approx(value, rel=1e-5)


def test_the_parser_reads_a_histogram_whose_buckets_never_fall() -> None:
    text = "\n".join(histogram_lines("h", [Histogram([0.001, 0.005, 0.0051]), Histogram([60.0])])) + "\n"
    (family,) = text_string_to_metric_families(text)
    assert family.type == "histogram"
    counts = [one.value for one in family.samples if one.name == "h_bucket"]
    assert counts == sorted(counts)
    assert (len(counts), counts[0], counts[-1]) == (len(BUCKETS_S) + 1, 2, 4)


def test_nothing_measured_is_a_histogram_of_zeros() -> None:
    assert histogram_lines("h", [])[-1] == "h_count 0"
