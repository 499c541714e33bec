"""Rows along a z-curve: the same rows, and files that hold few boxes and few topics."""

import pytest
from pyspark.sql import Row, SparkSession

from uplink_spark.jobs.care import arranged
from uplink_spark.jobs.z_order import places, spread


def test_bits_are_spread_and_values_take_the_share_of_their_rows() -> None:
    assert [spread(number) for number in (0, 1, 2, 3, 0xFFFF)] == [0, 1, 4, 5, 0x55555555]
    assert places({"b": 2, "a": 1, "c": 1}) == {"a": 0, "b": spread(1 << 14), "c": spread(3 << 14)}
    assert places({}) == {}


@pytest.mark.slow
def test_each_part_holds_few_boxes_and_few_topics(spark: SparkSession) -> None:
    cells = [
        (f"box-{box}", f"T{topic}" if topic else None, at) for box in range(8) for topic in range(8) for at in (1, 2)
    ]
    rows = spark.createDataFrame(cells, "box string, topic string, store_time int")
    parts = arranged(rows, 4, z_order=True).rdd.glom().collect()
    assert sorted(map(tuple, sum(parts, list[Row]())), key=str) == sorted(cells, key=str)
    kinds = [(len({row.box for row in part}), len({row.topic for row in part})) for part in parts]
    assert sum(boxes * topics for boxes, topics in kinds) <= 2 * 64
    assert max(boxes for boxes, _ in kinds) < 8
    assert max(topics for _, topics in kinds) < 8
