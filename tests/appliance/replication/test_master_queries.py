"""What a slave asks beside the log: answers of a box, and of Java with its bare keys."""

import json
from pathlib import Path

import pytest

from appliance.replication.master_queries import MasterQueries, read_edges, read_table
from netstack.errors import ProtocolError
from netstack.wire.codes import RequestCode as Code
from storage_driver.record import decode_record
from tests.appliance.box import connected, running_box, send


async def test_a_box_answers_all_that_its_slaves_ask(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        queries = MasterQueries("127.0.0.1", box.broker_port)
        assert await queries.edges() == (0, 0, 16 << 20)
        assert isinstance(await queries.table(Code.GET_ALL_DELAY_OFFSET, "offsetTable"), dict)
        assert isinstance(await queries.table(Code.GET_ALL_CONSUMER_OFFSET, "offsetTable"), dict)
        await channel.ask(send("T", b"body"))
        first, end, _ = await queries.edges()
        record = await queries.record_at(first)
        assert (decode_record(record).body, len(record), first) == (b"body", end, 0)
        assert "T" in await queries.table(Code.GET_ALL_TOPIC_CONFIG, "topicConfigTable")
        with pytest.raises(ProtocolError, match="the master refused request code 33"):
            await queries.record_at(7)
        with pytest.raises(ProtocolError, match="has no offsetTable"):
            await queries.table(Code.GET_ALL_TOPIC_CONFIG, "offsetTable")


def test_the_bare_numbers_of_java_are_keys() -> None:
    body = b'{\n\t"offsetTable":{\n\t\t"T@g":{0:17,1:-1\n\t\t},"%RETRY%g@g":{10:3}}}'
    assert read_table(body, "offsetTable") == {"T@g": {"0": 17, "1": -1}, "%RETRY%g@g": {"10": 3}}


def test_many_offsets_are_read_whatever_their_keys() -> None:
    rows = b",".join(b'"T%d@g":{0:%d,1:2}' % (number, number) for number in range(20_000))
    assert read_table(b'{"offsetTable":{%b}}' % rows, "offsetTable")["T19999@g"] == {"0": 19_999, "1": 2}


@pytest.mark.parametrize(
    ("first", "end", "size"),
    [
        ("", "7", ""),
        ("x", "7", ""),
        ("0", str(1 << 60), ""),
        ("8", "7", ""),
        ("0", "7", "9" * 5000),
        ("9" * 5000, "7", ""),
    ],
)
def test_a_master_that_says_strange_things_of_its_log_is_an_error(first: str, end: str, size: str) -> None:
    table = {"commitLogMinOffset": first, "commitLogMaxOffset": end}
    assert read_edges(b'{"table":{"commitLogMinOffset":"-1","commitLogMaxOffset":"0"}}', b"") == (0, 0, None)
    for body in (json.dumps({"table": table}).encode(), b"[]", b"{", b'{"table":7}', b""):
        with pytest.raises(ProtocolError, match="the master "):
            read_edges(body, f"mappedFileSizeCommitLog={size}\n".encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"offsetTable":[]}', b"null"])
def test_an_answer_without_the_table_is_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_table(body, "offsetTable")
