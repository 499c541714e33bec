"""The live table: figures per topic and window, as a stream that ends or goes on."""

import threading
from typing import Any

import pytest

from uplink_spark.jobs.windows import WindowRow, format_table, run_windows
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece

T0 = 1_700_000_000_000  # 22:13:20


def land(landing: MadeLanding, numbers: range, start: int = 0, topic: str = "Vitals") -> int:
    records = [
        MadeRecord(topic, body=b'{"cpu": {"percent": %d}}' % n if n else b"no JSON", born_ms=T0 + n * 1000)
        for n in numbers
    ]
    piece = log_piece(records, start)
    landing.land(piece)
    return piece[0].end


@pytest.mark.slow
def test_figures_are_per_topic_and_window_of_sending_time(spark: Any, landing: MadeLanding) -> None:
    end = land(landing, range(15))
    land(landing, range(1, 2), end, topic="Other")
    shown: list[list[WindowRow]] = []
    run_windows(spark, str(landing.root), vital="cpu.percent", show=shown.append)
    rows = {(row.topic, row.start): row for row in shown[-1]}
    assert set(rows) == {("Other", "22:13:20"), ("Vitals", "22:13:20"), ("Vitals", "22:13:30")}
    first = rows[("Vitals", "22:13:20")]
    assert (first.messages, first.vital_avg, first.vital_p99) == (10, 5.0, 9.0)  # 0 is no JSON
    assert first.bytes == sum(len(b'{"cpu": {"percent": 1}}') + 97 for _ in range(9)) + 7 + 97
    assert first.latency_ms_avg > 1000 * 86_400


@pytest.mark.slow
def test_a_running_stream_shows_what_lands_later(spark: Any, landing: MadeLanding) -> None:
    end = land(landing, range(1, 4))
    shown: list[list[WindowRow]] = []
    more = threading.Event()

    def show(rows: list[WindowRow]) -> None:
        shown.append(rows)
        if sum(row.messages for row in rows) == 5:
            more.set()

    query = run_windows(spark, str(landing.root), vital="cpu.percent", once=False, trigger="0 seconds", show=show)
    try:
        land(landing, range(4, 6), end)
        assert more.wait(60)
    finally:
        query.stop()


def test_the_table_is_aligned_and_says_where_there_is_no_figure() -> None:
    rows = [
        WindowRow("Vitals", "22:13:20", 10, 1200, 5.0, 9.25, 12.4, 99.6),
        WindowRow("A", "22:13:20", 1, 7, None, None, 0, 0),
    ]
    assert format_table(rows, "cpu") == (
        "TOPIC   WINDOW    MESSAGES  BYTES  cpu AVG   P99  LATENCY AVG     P99\n"
        "Vitals  22:13:20        10   1200     5.00  9.25        12 ms  100 ms\n"
        "A       22:13:20         1      7        -     -         0 ms    0 ms"
    )
