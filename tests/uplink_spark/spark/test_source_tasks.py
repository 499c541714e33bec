"""What tasks read: planned on the driver, pickled to a worker, the same rows on either way."""

import gc
import pickle
import resource
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from uplink_spark.spark.source_options import parse_options
from uplink_spark.spark.source_tasks import (
    LARGE_BYTES,
    PLAN_SCHEMA,
    MessageRows,
    PlanRows,
    Work,
    batches_of,
    settle_worker,
)
from uplink_spark.spark_source import PlanSource
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.zone.reader import ZoneReader


def landed(landing: MadeLanding, pieces: int) -> dict[str, str]:
    end = 0
    for number in range(pieces):
        piece = log_piece([MadeRecord(topic="Vitals", body=b"%d" % (number * 10 + at)) for at in range(10)], end)
        landing.land(piece)
        end = piece[0].end
    return {"path": str(landing.root), "partitionBytes": "1k", "columns": "log_offset,body"}


@pytest.mark.slow  # it imports pyspark
def test_a_plan_has_a_row_for_each_task_and_rows_are_made_of_it(landing: MadeLanding) -> None:
    given = landed(landing, 5)
    options = parse_options(given)
    zone, plan = ZoneReader(options.path), PlanRows(options)
    tasks = [pickle.loads(pickle.dumps(task)) for task in plan.plan(zone, zone.begins(), zone.ends())]
    plans = [batch for task in tasks for batch in plan.batches(task)]
    assert len(tasks) > 1
    assert [(batch.num_rows, batch.schema) for batch in plans] == [(1, PLAN_SCHEMA)] * len(tasks)
    direct = [batch for task in tasks for batch in MessageRows(options).batches(task)]
    by_plan = pa.Table.from_batches(PlanSource(given).rows(iter(plans)))
    assert by_plan.equals(pa.Table.from_batches(direct))
    assert sorted(int(body) for body in by_plan["body"].to_pylist()) == list(range(50))


def test_a_partition_of_an_empty_plan_has_no_rows(landing: MadeLanding) -> None:
    content = MessageRows(parse_options({"path": str(landing.root)}))
    assert list(batches_of(content, None)) == []
    assert list(batches_of(content, Work())) == []


@pytest.fixture
def settled() -> Iterator[None]:
    """This process as a worker at its first task: another test may have read rows in it before."""
    settle_worker.cache_clear()
    settle_worker()
    yield
    gc.unfreeze()


def test_a_worker_keeps_what_it_has_imported_out_of_later_collections(settled: None) -> None:
    assert gc.get_freeze_count() > 1000


def test_a_worker_takes_memory_for_each_batch_without_page_faults(settled: None) -> None:
    def blocks() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        held = [np.ones(LARGE_BYTES // 16, np.int64) for _ in range(3)]  # 16 MiB each
        del held
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    blocks()
    assert blocks() < 1000  # 48 MiB are 12,288 pages
    assert pa.default_memory_pool().backend_name == "system"
