"""What a stock Java client sends, as rows at the centre: the default view is what was sent and committed."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.box import Box, Gateway, until
from tests.interop.client import Seen, producer, push_consumer, started, unique
from tests.interop.jvm import Jvm
from uplink_spark.spark.source_options import parse_options
from uplink_spark.spark.source_tasks import MessageRows
from uplink_spark.spark_source import BatchReader

pytestmark = pytest.mark.slow

LONG = b"0123456789abcdef" * 512  # 8 KiB: the client compresses above 4
SENT = Counter([b"plain", b"again", b"dead", LONG, b"batch 0", b"batch 1", b"batch 2", b"later", b"commit"])


def rows_of(landing: Path, **options: str) -> list[dict[str, Any]]:
    """Return what `format("commitlog")` hands to Spark."""
    parsed = parse_options({"path": str(landing), **options})
    reader = BatchReader(parsed, MessageRows(parsed))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@contextmanager
def shipping_box(folder: Path) -> Iterator[tuple[Box, Path]]:
    """A box whose messages land, and where."""
    gateway = Gateway(folder / "landing")
    box = Box(folder / "data", uplink=gateway.address, config="[uplink]\nmax_delay_s = 0.2\n")
    try:
        gateway.start()
        box.start()
        yield box, gateway.landing
    finally:
        for child in (box, gateway):
            if child.running:
                child.stop()


def send_transactions(jvm: Jvm, box: Box, topic: str) -> None:
    """One that is committed, one that is rolled back."""
    states = jvm.cls("client.producer.LocalTransactionState")

    def execute(message: Any, _argument: Any) -> Any:
        return states.COMMIT_MESSAGE if bytes(message.getBody()) == b"commit" else states.ROLLBACK_MESSAGE

    made = jvm.new("client.producer.TransactionMQProducer", unique("transaction_producer"))
    listener = "client.producer.TransactionListener"
    made.setTransactionListener(
        jvm.callback(listener, executeLocalTransaction=execute, checkLocalTransaction=lambda _: states.UNKNOW)
    )
    with started(made, box.namesrv, {"SendMsgTimeout": 10_000}):
        for body in (b"commit", b"roll back"):
            made.sendMessageInTransaction(jvm.message(topic, body), None)


def answer(batch: list[Seen], context: Any) -> str:
    """Fail one message once and let another one die."""
    body, times = batch[0].body, batch[0].reconsume_times
    if body == b"dead":
        context.setDelayLevelWhenNextConsume(-1)
        return "RECONSUME_LATER"
    if body == b"again" and not times:
        context.setDelayLevelWhenNextConsume(1)
        return "RECONSUME_LATER"
    return "CONSUME_SUCCESS"


def test_the_default_view_is_what_was_sent_and_committed_and_the_rest_has_its_kind(jvm4: Jvm, tmp_path: Path) -> None:
    topic = unique("rows")
    with shipping_box(tmp_path) as (box, landing):
        with producer(jvm4, box.namesrv) as client:
            for body in (b"plain", b"again", b"dead", LONG):
                client.send(jvm4.message(topic, body, tags="t", keys="k1 k2", own="yes"))
            client.send(jvm4.list_of(jvm4.message(topic, b"batch %d" % n) for n in range(3)))
            later = jvm4.message(topic, b"later")
            later.setDelayTimeLevel(1)
            client.send(later)
            send_transactions(jvm4, box, topic)
        with push_consumer(jvm4, box.namesrv, topic, answer=answer, ConsumeMessageBatchMaxSize=1) as collected:
            collected.wait(lambda seen: Counter(each.body for each in seen) == SENT + Counter([b"again"]), 60)
            until(
                lambda: Counter(landed_kinds(landing, topic)) >= Counter(message=SENT.total(), half=2, retry=1, dlq=1),
                seconds=30,
                what="not all that the consumer saw has landed",
            )
    check_messages(rows_of(landing, topics=topic))
    check_kinds(landing, topic)


def landed_kinds(landing: Path, topic: str) -> list[str]:
    return [row["kind"] for row in rows_of(landing, include="all") if about(row, topic)]


def about(row: dict[str, Any], topic: str) -> bool:
    """Whether a row is a message of the topic, in whatever shape."""
    names = dict(row["properties"] or ())
    return topic in (row["topic"], names.get("REAL_TOPIC"), names.get("RETRY_TOPIC"))


def check_messages(rows: list[dict[str, Any]]) -> None:
    assert Counter(row["body"] for row in rows) == SENT
    found = {row["body"]: row for row in rows}
    assert found[LONG]["body_state"] == "inflated"
    assert (found[b"plain"]["tags"], found[b"plain"]["keys"]) == ("t", ["k1", "k2"])
    assert dict(found[b"plain"]["properties"])["own"] == "yes"
    late = found[b"later"]["store_time"] - found[b"later"]["born_time"]
    assert 0.9 <= late.total_seconds() < 30  # stored when it was delivered, born when it was sent
    assert dict(found[b"later"]["properties"])["DELAY"] == "1"
    assert found[b"commit"]["sys_flag"] & 0xC == 8
    assert dict(found[b"commit"]["properties"])["TRAN_MSG"] == "true"
    assert len({row["msg_id"] for row in rows}) == len(rows)


def check_kinds(landing: Path, topic: str) -> None:
    rows = [row for row in rows_of(landing, include="all") if about(row, topic)]
    by_kind = {kind: Counter(r["body"] for r in rows if r["kind"] == kind) for kind in {r["kind"] for r in rows}}
    assert by_kind["message"] == SENT
    assert by_kind["half"] == Counter([b"commit", b"roll back"])
    assert by_kind["retry"] == Counter([b"again"])
    assert by_kind["dlq"] == Counter([b"dead"])
    assert by_kind["delayed"][b"later"] == 1
    assert [row["body"] for row in rows_of(landing, include="message,dlq") if row["kind"] == "dlq"] == [b"dead"]
    assert len(rows_of(landing, include="op")) >= 2  # one for each transaction that ended
