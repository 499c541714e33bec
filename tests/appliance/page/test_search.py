"""Searching for the page: each way finds what is there and nothing else, and odd words are a sentence."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.broker.tables.topics import Topic
from appliance.page.search import (
    MOST_FOUND,
    MOST_QUEUES,
    READ_BYTES,
    BestRows,
    SearchQuery,
    at_place,
    readable,
    search,
    setting_out,
    summary,
)
from appliance.page.words import PREVIEW_BYTES
from appliance.testing import STORE_HOST
from storage_driver.record import Message, StoredMessage, encode_properties
from tests.appliance.admin_bench import Bench, bench

NOON = 1_700_000_000_000


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[tuple[Any, Bench, list[int]]]:
    clock = [NOON]
    async with bench(folder, clock) as made:
        made.topics.put(Topic("U", 1, 1))
        yield SimpleNamespace(tables=made, store=made.store, now_ms=lambda: clock[0]), made, clock


async def bodies(at: Any, **wanted: str) -> list[str]:
    return [row["start"] for row in (await search(at, SearchQuery(**wanted))).messages]


async def test_keys_are_found_in_a_topic_or_in_all_newest_first(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, made, _):
        await made.send(2, KEYS="a b")
        await made.send(1, topic="U", KEYS="b")
        assert await bodies(at, key=" b ") == ["0", "1", "0"]
        assert await bodies(at, key="b", topic="U") == ["0"]
        assert await bodies(at, key="a", topic="U") == []
        outcome = await search(at, SearchQuery(key="c"))
        assert (outcome.messages, outcome.said) == ([], "nothing with the key c")
        assert (await search(at, SearchQuery(key="b"))).said == "3 messages with the key b"
        assert (await search(at, SearchQuery(topic="V", key="b"))).said == "there is no topic V"
        assert (await search(at, SearchQuery())).said == "name a topic, a key or a message id"


async def test_many_queues_with_large_messages_are_read_within_one_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path) as (at, made, _):
        read, asked = made.store.read, list[int]()

        async def noted(*place: Any, **most: Any) -> Any:
            asked.append(most["max_bytes"])
            return await read(*place, **most)

        for queue_id in range(MOST_QUEUES + 5):
            await made.send(1, queue_id)
        monkeypatch.setattr(made.store, "read", noted)
        for wanted in (SearchQuery(topic="T"), SearchQuery(topic="T", time="2023-01-01")):
            asked.clear()
            outcome = await search(at, wanted)
            assert (len(outcome.messages), len(asked)) == (MOST_FOUND, MOST_QUEUES)
            assert sum(asked) <= READ_BYTES
            assert f"of its first {MOST_QUEUES} queues" in outcome.said


async def test_of_messages_that_are_found_only_rows_are_kept(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, made, _):
        large = await stored(at, made, Message("T", 0, bytes(60_000), b"", 0, 0, 1, STORE_HOST))
    found = BestRows()
    for number in (*range(100), 99, 3):
        found.add(large._replace(log_offset=number))
    rows = found.rows()
    assert (len(rows), rows[0]["bytes"], rows[0]["at"] == rows[1]["at"]) == (MOST_FOUND, 60_000, True)
    assert sum(len(repr(row)) for row in rows) < MOST_FOUND * 2000


async def test_both_ids_are_found_and_an_id_of_another_place_is_not(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, made, _):
        placed = (await made.send(3, UNIQ_KEY="C0A8000100002A9F0000000000000001"))[1]
        outcome = await search(at, SearchQuery(topic="T"))
        second = next(row for row in outcome.messages if row["start"] == "1")
        assert [row["start"] for row in (await search(at, SearchQuery(id=f" {second['at'].lower()} "))).messages] == [
            "1"
        ]
        assert len(await bodies(at, id="C0A8000100002A9F0000000000000001")) == 3
        other_host = "0A" + second["at"][2:]
        inside = second["at"][:-16] + f"{placed.log_offset + 1:016X}"
        beyond = second["at"][:-16] + "7FFFFFFFFFFFFFFF"
        for text in (other_host, inside, beyond, "xyz", "FFFFFFFFFFFFFFFF" * 2):
            assert await bodies(at, id=text) == [], text


async def test_from_a_moment_on_the_oldest_come_first_and_none_before_it(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, made, clock):
        for minute in range(3):
            clock[0] = NOON + minute * 60_000
            await made.send(1, queue_id=minute)
        one_minute_later = "2023-11-14 22:14:20"
        found = await search(at, SearchQuery(topic="T", time=one_minute_later))
        assert [row["queue"] for row in found.messages] == [1, 2]
        assert found.said == "the first 2 stored in T from 2023-11-14 22:14:20.000 UTC on"
        shifted = await search(at, SearchQuery(topic="T", time="2023-11-14T23:14:20+01:00"))
        assert [row["queue"] for row in shifted.messages] == [1, 2]
        assert (await search(at, SearchQuery(topic="T", time="tomorrow"))).said.startswith(
            "tomorrow is not a time: write"
        )


@pytest.mark.parametrize("time", ["0001-01-01", "9999-12-31T23:59:59", "9999-12-31T23:59:59-12:00"])
async def test_a_time_at_the_end_of_the_calendar_is_an_answer(tmp_path: Path, time: str) -> None:
    async with watched(tmp_path) as (at, made, _):
        await made.send(1)
        found = await search(at, SearchQuery(topic="T", time=time))
        assert len(found.messages) == int(time.startswith("0001"))


async def test_a_search_is_bounded(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, made, _):
        await made.send(MOST_FOUND + 20, KEYS="k")
        for wanted in (SearchQuery(key="k"), SearchQuery(topic="T"), SearchQuery(topic="T", time="2020-01-01")):
            assert len((await search(at, wanted)).messages) == MOST_FOUND
        assert (await search(at, SearchQuery(topic="T"))).messages[0]["start"] == str(MOST_FOUND + 19)


async def stored(at: Any, made: Bench, message: Message) -> StoredMessage:
    placed = made.store.put(message)
    await made.store.wait_committed(placed.end)
    found = await search(at, SearchQuery(topic=message.topic))
    read = await at_place(at, found.messages[0]["at"])
    assert read is not None
    return read


async def test_what_a_sender_makes_up_is_shown_and_no_error(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, made, _):
        properties = encode_properties({"KEYS": "<k>", "x": "é"})
        born_ms = 1 << 62
        read = await stored(at, made, Message("T", 0, b"\xff\x00<b>", properties, 7, 0, born_ms, STORE_HOST))
        row, whole = summary(read), setting_out(read)
        assert row["keys"] == "<k>"
        assert whole["facts"]["Born"].startswith(f"{born_ms} ms at ")
        assert whole["properties"]["x"] == "é"
        assert whole["body"]["kind"] == "bytes"


async def test_the_start_of_a_long_text_is_text_wherever_it_is_cut(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, made, _):
        for before in ("", "x", "xx"):
            body = (before + "测" * 100).encode()
            read = await stored(at, made, Message("T", 0, body, b"", 0, 0, 1, STORE_HOST))
            assert summary(read)["start"] == before + "测" * 66  # of 200 bytes


async def test_a_packed_body_is_shown_unpacked_but_never_more_than_a_preview_of_it(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, made, _):
        bomb = zlib.compress(b"0" * (4 << 20))
        read = await stored(at, made, Message("T", 0, bomb, b"", 0, 1, 1, STORE_HOST))
        assert len(readable(read)) == PREVIEW_BYTES + 1
        assert setting_out(read)["cut"]
        broken = await stored(at, made, Message("U", 0, b"not zlib", b"", 0, 1, 1, STORE_HOST))
        assert readable(broken) == b"not zlib"
