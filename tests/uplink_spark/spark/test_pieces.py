import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.uplink_spark.spark.test_source_plan import entry, options, table
from uplink_spark.spark.packs import ref_of
from uplink_spark.spark.pieces import TaskCutter, narrow
from uplink_spark.spark.source_plan import pieces_wanted


def test_a_task_has_the_pieces_it_was_planned_with_after_it_was_pickled() -> None:
    entries = [entry(seq, box=f"box-{seq % 3}", pack=f"p{seq // 4}", epoch=1 << 62, skip=("A",)) for seq in range(9)]
    cutter = TaskCutter(1 << 30)
    cutter.add(pieces_wanted(table(*entries), 5, options(raw="true")))
    (task,) = pickle.loads(pickle.dumps(cutter.tasks()))
    assert [ref for part in task for ref in part.refs()] == [ref_of(one, 5) for one in entries]


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(1, 100), max_size=8), max_size=6),
    st.integers(1, 200),
)
def test_tasks_hold_all_pieces_in_order_and_stay_below_their_size(tables: list[list[int]], most: int) -> None:
    cutter, sizes = TaskCutter(most), []
    for shard, costs in enumerate(tables):
        if costs:
            entries = [entry(seq, raw_bytes=cost) for seq, cost in enumerate(costs)]
            cutter.add(pieces_wanted(table(*entries), shard, options()))
            sizes += [(shard, seq, cost) for seq, cost in enumerate(costs)]
    tasks = [[ref for part in task for ref in part.refs()] for task in cutter.tasks()]
    assert [(ref.origin.shard, ref.origin.seq, ref.raw_bytes) for task in tasks for ref in task] == sizes
    totals = [sum(ref.raw_bytes for ref in task) for task in tasks]
    assert all(total <= most or len(task) == 1 for total, task in zip(totals, tasks, strict=True))
    assert all(one + task[0].raw_bytes > most for one, task in zip(totals, tasks[1:], strict=False))  # none too small


def test_columns_take_as_many_bytes_as_their_values_need() -> None:
    assert narrow(np.array([1, 255])).dtype == np.uint8
    assert narrow(np.array([1, 1 << 40])).dtype == np.uint64
    assert narrow(np.array([-1, 5])).dtype == np.int64
    assert narrow(np.array([], np.int64)).dtype == np.int64
