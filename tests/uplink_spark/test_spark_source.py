"""The data sources on a real landing zone and a real SparkSession."""

import json
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from uplink_spark import spark_source
from uplink_spark.centre.zone_files.landing import NewPiece
from uplink_spark.jobs.waiting import reason_of
from uplink_spark.spark.source_options import OptionError
from uplink_spark.testing import MadeLanding, MadeRecord, encode_log, gap_piece, log_piece, raw_piece
from uplink_spark.wire.batch import PieceSource, encode_piece
from uplink_spark.zone.manifest import shard_of

pytestmark = pytest.mark.slow
T0 = 1_700_000_000_000


def source(box: str = "box-17", epoch: int = 5) -> PieceSource:
    return PieceSource(box=box, epoch=epoch, run=7, run_start=0, cut_ms=T0, clock_ok=1)


def land(
    landing: MadeLanding, *records: MadeRecord, start: int = 0, box: str = "box-17", landed: int = T0 + 1000
) -> int:
    """Land records as one piece and return where it ends."""
    piece = log_piece(records, start, source=source(box))
    landing.land(piece, now_ms=landed)
    return piece[0].end


def numbered(count: int, first: int = 0, topic: str = "Vitals") -> list[MadeRecord]:
    return [
        MadeRecord(topic=topic, queue_offset=first + n, body=b"%d" % (first + n), stored_ms=T0 + first + n)
        for n in range(count)
    ]


def batch(spark: Any, landing: MadeLanding, **options: Any) -> list[bytes]:
    frame = spark_source.read(spark, str(landing.root), **options).select("body").collect()
    return sorted((bytes(row["body"]) for row in frame), key=lambda body: (len(body), body))


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % n for n in numbers]


def test_wide_reads_give_the_rows_of_a_scan_in_batch_and_stream(
    spark: Any, landing: MadeLanding, tmp_path: Path
) -> None:
    end = land(landing, *numbered(30))
    land(landing, *numbered(20, first=30, topic="Other"), start=end)
    where = str(landing.root)
    wide = spark_source.read_wide(spark, where, topics=["Vitals"])
    scan = spark_source.read(spark, where, topics=["Vitals"])
    assert wide.schema == scan.schema
    assert sorted(wide.collect(), key=str) == sorted(scan.collect(), key=str)
    land(landing, *numbered(5, first=50), start=end + 10_000)
    stream = spark_source.read_wide(spark, where, stream=True, columns="body", maxPiecesPerTrigger=1)
    query = stream.writeStream.format("memory").queryName("wide").option("checkpointLocation", str(tmp_path / "ck"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(int(row[0]) for row in spark.table("wide").collect()) == list(range(55))
    with pytest.raises(OptionError, match="did you mean topics"):
        spark_source.read_wide(spark, where, topic="x")


def test_a_batch_query_reads_every_landed_message_with_its_key(spark: Any, landing: MadeLanding) -> None:
    end = land(landing, *numbered(3))
    land(landing, *numbered(2, first=3), start=end)
    frame = spark.read.format("commitlog").load(str(landing.root))
    rows = frame.orderBy("log_offset").collect()
    assert [bytes(row["body"]) for row in rows] == bodies(0, 1, 2, 3, 4)
    assert {(row["box"], row["epoch"]) for row in rows} == {("box-17", 5)}
    assert [row["seq"] for row in rows] == [0, 0, 0, 1, 1]
    assert rows[4]["log_offset"] > end


def test_what_lies_behind_the_last_mark_is_not_read(spark: Any, landing: MadeLanding) -> None:
    end = land(landing, *numbered(2))
    log = next((landing.root / "manifest/0000").glob("*.log"))
    marked = log.read_bytes()
    land(landing, *numbered(2, first=2), start=end)
    log.write_bytes(log.read_bytes()[:-8])  # the entry is whole, its mark is gone
    assert batch(spark, landing) == bodies(0, 1)
    log.write_bytes(marked)
    assert batch(spark, landing) == bodies(0, 1)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"topics": ["A"]}, [0]),
        ({"topics": "A, B"}, [0, 1]),
        ({"topicPattern": "[BC]"}, [1, 2]),
        ({"include": "dlq"}, [3]),
        ({"include": "message,dlq"}, [0, 1, 2, 3]),
        ({"include": "all"}, [0, 1, 2, 3]),
        ({"raw": True}, [0, 1, 2, 3]),
        ({"storeSince": T0 + 1, "storeUntil": T0 + 2}, [1]),
        ({"boxes": "nobody"}, []),
        ({"tags": "t2"}, [2]),
        ({"startingOffsets": '{"0": 2}'}, [2]),
        ({"startingOffsets": "latest"}, []),
        ({"endingOffsets": '{"0": 1}'}, [0]),
        ({"startingTimestamp": T0 + 2000, "endingTimestamp": T0 + 3000}, [1]),
        ({"startingTimestamp": "2023-11-14T22:13:22Z"}, [1, 2]),
    ],
)
def test_options_choose_rows(spark: Any, landing: MadeLanding, options: dict[str, Any], wanted: list[int]) -> None:
    at = 0
    for n, topic in enumerate(["A", "B", "C", "%DLQ%g"]):
        record = MadeRecord(topic=topic, body=b"%d" % n, stored_ms=T0 + n, properties=f"TAGS\x01t{n}")
        at = land(landing, record, start=at, landed=T0 + 1000 * (n + 1))
    assert batch(spark, landing, **options) == bodies(*wanted)


def test_columns_narrow_the_schema_and_may_name_the_length_of_the_body(spark: Any, landing: MadeLanding) -> None:
    land(landing, MadeRecord(body=b"seven!!"))
    frame = spark_source.read(spark, str(landing.root), columns="topic,body_len", propertiesAs="string")
    assert frame.columns == ["topic", "body_len"]
    assert [tuple(row) for row in frame.collect()] == [("T", 7)]


def test_bodies_are_inflated_checked_and_read_in_tasks_of_the_size_asked_for(spark: Any, landing: MadeLanding) -> None:
    packed = zlib.compress(b"0" * 50)
    end = land(landing, MadeRecord(body=packed, sys_flag=1))
    raw = bytearray(encode_log([MadeRecord(body=b"1")], end))
    raw[8] ^= 1  # the CRC of its body
    landing.land(raw_piece(bytes(raw), end, source=source()), now_ms=T0 + 2000)
    read = partial(spark_source.read, spark, str(landing.root), columns="body,body_state")
    assert batch(spark, landing) == [b"1", b"0" * 50]
    assert batch(spark, landing, inflate=False) == [b"1", packed]
    assert {row["body_state"] for row in read().collect()} == {"inflated", "plain"}
    assert {row["body_state"] for row in read(checkBodyCrc=True).collect()} == {"inflated", "bad_crc"}
    assert read().rdd.getNumPartitions() == 1
    assert read(partitionBytes=1).rdd.getNumPartitions() == 2


def test_reading_may_start_at_a_log_offset_of_a_box(spark: Any, landing: MadeLanding) -> None:
    records = numbered(4)
    land(landing, *records)
    second = log_piece(records[:2])[0].end
    start = {"box-17": {"epoch": "5", "offset": second}}
    assert batch(spark, landing, startingLogOffsets=start) == bodies(2, 3)
    with pytest.raises(Exception, match=r"startingLogOffsets: 6 is not one epoch of box-17; .* has 0000000000000005"):
        batch(spark, landing, startingLogOffsets={"box-17": {"epoch": "6", "offset": 0}})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topisc": "A"}, "option topisc is not known, did you mean topics?; known options: path, columns"),
        ({"columns": "topic,bodie"}, "option columns = 'topic,bodie': bodie: no such column; name each column once"),
        (
            {"startingOffsets": "latest", "endingOffsets": "earliest"},
            "at seq 1 of shard 0 and ends at 0: start is after end, no row matches",
        ),
        ({"startingOffsets": '{"0": 9}'}, "shard 0 ends at seq 1; an offset of 9 is beyond it"),
        ({"startingOffsets": '{"3": 0}'}, "shard 3 is not in this landing zone"),
        ({"maxBytesPerTrigger": "1m"}, "option maxBytesPerTrigger is for a stream query, this is a batch query"),
        ({"include": "mesage"}, "'mesage' is not a kind; use all or some of: message, half"),
    ],
)
def test_a_wrong_option_is_named_on_the_driver(
    spark: Any, landing: MadeLanding, options: dict[str, Any], sentence: str
) -> None:
    land(landing, MadeRecord())
    with pytest.raises(Exception, match="SQLSTATE") as caught:
        spark_source.read(spark, str(landing.root), **options).collect()
    assert sentence in reason_of(caught.value)


def test_a_folder_that_is_no_landing_zone_is_named_with_the_next_step(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="SQLSTATE") as caught:
        spark_source.read(spark, str(tmp_path / "none")).count()
    assert "it has no file LANDING; the gateway creates it" in reason_of(caught.value)


def test_a_schema_other_than_the_columns_is_refused(spark: Any, landing: MadeLanding) -> None:
    land(landing, MadeRecord())
    with pytest.raises(Exception, match="SQLSTATE") as caught:
        spark.read.format("commitlog").schema("topic string").load(str(landing.root)).collect()
    assert "name columns with option columns" in reason_of(caught.value)


def damage(landing: MadeLanding, which: int) -> Path:
    pack = sorted(landing.root.glob("pack/*/*/*.pack"))[which]
    raw = bytearray(pack.read_bytes())
    raw[-20] ^= 1
    pack.write_bytes(raw)
    return pack


def test_a_damaged_pack_fails_the_query_with_box_range_and_path_or_is_left_out(
    spark: Any, landing: MadeLanding
) -> None:
    end = land(landing, *numbered(2))
    land(landing, *numbered(2, first=2), start=end)
    pack = damage(landing, 0)
    with pytest.raises(Exception, match="check --deep") as caught:
        batch(spark, landing)
    assert f"box box-17, epoch 5, log 0..{end} (seq 0:0) cannot be read from {pack} at 0" in str(caught.value)
    assert batch(spark, landing, failOnDataLoss=False) == bodies(2, 3)
    pack.unlink()
    assert batch(spark, landing, failOnDataLoss=False) == bodies(2, 3)


def test_two_shards_are_one_table_and_one_offset(spark: Any, tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "two", shards=2)
    boxes = [next(f"box-{n}" for n in range(99) if shard_of(f"box-{n}", 2) == shard) for shard in (0, 1)]
    for n, box in enumerate(boxes):
        land(landing, MadeRecord(body=b"%d" % n), box=box)
    assert batch(spark, landing) == bodies(0, 1)
    assert batch(spark, landing, startingOffsets='{"0": -1, "1": 0}') == bodies(1)
    assert batch(spark, landing, boxes=boxes[0]) == bodies(0)
    landing.close()


def test_topics_with_an_express_lane_are_read_once(spark: Any, landing: MadeLanding) -> None:
    records = [MadeRecord(topic="A", body=b"0"), MadeRecord(topic="Alarm", body=b"1")]
    header, container = log_piece(records)
    alarm = log_piece(records[1:], log_piece(records[:1])[0].end)
    picked = encode_piece(source(), _pick(alarm, header.end), "none")
    whole = encode_piece(source(), _skipping(records), "none")
    landing.land(NewPiece(picked[0], picked[1], ((0, header.end),)))
    assert batch(spark, landing) == bodies(1)
    landing.land(NewPiece(whole[0], whole[1], ((0, header.end),)))
    assert batch(spark, landing) == bodies(0, 1)
    assert batch(spark, landing, raw=True) == bodies(0, 1)
    assert container


def _pick(piece: Any, end: int) -> Any:
    from uplink_spark.wire.batch import PieceContents, open_piece

    opened = open_piece(piece[1])
    raw, sizes = opened.raw(), opened.sizes() or b""
    topics = {"Alarm": (1, 1)}
    return PieceContents("pick", 0, end, raw, sizes, T0, T0 + 1, topics, pick=("Alarm",))


def _skipping(records: list[MadeRecord]) -> Any:
    from uplink_spark.wire.batch import PieceContents, open_piece

    header, container = log_piece(records)
    opened = open_piece(container)
    raw, sizes = opened.raw(), opened.sizes() or b""
    return PieceContents("log", 0, header.end, raw, sizes, T0, T0 + 1, header.topics, skip=("Alarm",))


def test_the_manifest_shows_what_landed_and_what_was_declared_lost(spark: Any, landing: MadeLanding) -> None:
    end = land(landing, *numbered(2))
    gap = {"class": "missing", "reason": "disk_full", "records": 4, "queues": []}
    landing.land(gap_piece(end, end + 400, gap, source=source()))
    rows = spark.read.format("commitlog_manifest").load(str(landing.root)).orderBy("seq").collect()
    assert [(row["kind"], row["from_offset"], row["to_offset"]) for row in rows] == [
        ("log", 0, end),
        ("gap", end, end + 400),
    ]
    assert (rows[0]["records"], rows[0]["topics"]) == (2, ["Vitals"])
    assert json.loads(rows[1]["gap"])["reason"] == "disk_full"


# -- push-down ---------------------------------------------------------------------------------------------------------


def test_filters_are_taken_over_and_prune_pieces_that_are_then_not_opened(spark: Any, landing: MadeLanding) -> None:
    end = land(landing, *numbered(2, topic="A"))
    land(landing, *numbered(2, first=2, topic="B"), start=end)
    damage(landing, 0)  # opening it would fail
    frame = spark_source.read(spark, str(landing.root))
    assert frame.where("topic = 'B'").count() == 2
    assert frame.where("topic IN ('B', 'C') AND kind = 'message'").count() == 2
    assert frame.where(f"store_time >= timestamp_millis({T0 + 2})").count() == 2
    assert frame.where("seq > 0 AND log_offset >= 0 AND topic <> 'A'").count() == 2
    assert frame.where("box = 'nobody'").count() == 0
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")  # a session's zone moves no row
    try:
        assert frame.where("store_time >= timestamp '2023-11-15 07:13:20.002'").count() == 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    plan = frame.where("topic = 'B'")._jdf.queryExecution().executedPlan().toString()
    assert "= B" not in plan.split("BatchScan")[0]
    formatted = spark._jvm.PythonSQLUtils.explainString(
        frame.where("topic = 'B' and box = 'box-17'")._jdf.queryExecution(), "formatted"
    )
    assert "PushedFilters: [EqualTo(topic,B), EqualTo(box,box-17)]" in formatted


def test_with_push_down_off_the_same_rows_come_out(spark: Any, landing: MadeLanding) -> None:
    end = land(landing, *numbered(2, topic="A"))
    land(landing, *numbered(2, first=2, topic="B"), start=end)
    spark.conf.set(spark_source.PUSHDOWN, "false")
    try:
        frame = spark_source.read(spark, str(landing.root))
        assert frame.where("topic = 'B'").count() == 2
    finally:
        spark.conf.set(spark_source.PUSHDOWN, "true")
        spark_source.register(spark)


# -- streams -----------------------------------------------------------------------------------------------------------


class Stream:
    """A stream into a memory table, run with availableNow as often as asked."""

    def __init__(self, spark: Any, landing: MadeLanding, checkpoint: Path) -> None:
        self._spark, self._landing, self._checkpoint = spark, landing, checkpoint
        self.batches: list[list[bytes]] = []

    def run(self, **options: Any) -> list[list[bytes]]:
        """Return the bodies of each micro-batch of this run."""
        self.batches = []
        frame = spark_source.read(self._spark, str(self._landing.root), stream=True, columns="body", **options)

        def on_batch(rows: Any, _number: int) -> None:
            self.batches.append(sorted(bytes(row["body"]) for row in rows.collect()))

        writer = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(self._checkpoint))
        self.query = writer.trigger(availableNow=True).start()
        self.query.awaitTermination()
        return self.batches


def pieces(landing: MadeLanding, count: int, each: int = 2, first: int = 0, start: int = 0) -> int:
    for n in range(count):
        start = land(landing, *numbered(each, first=first + n * each), start=start)
    return start


def test_a_stream_keeps_to_its_limit_goes_on_where_its_checkpoint_ends_and_tells_the_centre(
    spark: Any, landing: MadeLanding, tmp_path: Path
) -> None:
    end = pieces(landing, 3)
    stream = Stream(spark, landing, tmp_path / "checkpoint")
    assert stream.run(maxPiecesPerTrigger=2, consumer="dashboard") == [bodies(0, 1, 2, 3), bodies(4, 5)]
    told = [json.loads(found["sources"][0]["latestOffset"])["lag"]["ranges"] for found in stream.query.recentProgress]
    assert told == [1, 0]
    saved = json.loads((landing.root / "consumers/dashboard.json").read_bytes())
    assert (saved["consumer"], saved["v"], saved["offsets"]) == ("dashboard", 1, {"0": 2})  # Spark commits one behind
    pieces(landing, 1, first=6, start=end)
    assert stream.run() == [bodies(6, 7)]
    offset = json.loads(stream.query.lastProgress["sources"][0]["endOffset"])
    assert (offset["0"], offset["zone"]) == (4, landing.zone.landing_id.hex())


def test_a_stream_of_an_earlier_program_goes_on_and_ends_where_another_zone_has_outgrown_it(
    spark: Any, landing: MadeLanding, tmp_path: Path
) -> None:
    end = pieces(landing, 2)
    stream = Stream(spark, landing, tmp_path / "checkpoint")
    assert stream.run(maxPiecesPerTrigger=1) == [bodies(0, 1), bodies(2, 3)]
    for path in (tmp_path / "checkpoint/offsets").glob("[0-9]*"):  # as it wrote them
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[:-1], json.dumps({"0": json.loads(lines[-1])["0"]})]))
        path.with_name(f".{path.name}.crc").unlink()
    assert stream.run() == []
    pieces(landing, 1, first=4, start=end)
    assert stream.run() == [bodies(4, 5)]
    landing.close()
    landing.root.rename(tmp_path / "elsewhere")
    other = MadeLanding(landing.root)
    pieces(other, 6, first=50)
    with pytest.raises(StreamingQueryException, match="is this the landing zone the checkpoint was made with"):
        stream.run()
    assert stream.batches == []
    other.close()
