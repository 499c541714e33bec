"""The first page as values: what is pressing comes first, the system apart, odd files are passed over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.broker.tables.topics import Topic
from appliance.configuration.settings import Config
from appliance.health.lag import Ages
from appliance.page.history import HOUR, Point
from appliance.page.overview import (
    MOST_VERDICTS,
    PER_BREATH,
    Curves,
    _share,
    client_rows,
    group_rows,
    machine_of,
    past_of,
    quota_of,
    topic_rows,
)
from appliance.page.vitals import HostVitals
from tests.appliance.admin_bench import Bench, bench
from tests.waiting import turns_of_others

NOON = 1_700_000_000_000


def seen(made: Bench, now_ms: int = NOON) -> Any:
    return SimpleNamespace(config=Config(), tables=made, store=made.store, now_ms=lambda: now_ms)


async def test_applications_come_apart_from_the_system_and_full_dead_letters_among_them(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        for name in ("%DLQ%full", "%DLQ%empty", "%RETRY%g", "busy"):
            made.topics.put(Topic(name, 1, 1))
        await made.send(3, topic="busy")
        await made.send(1, topic="%DLQ%full")
        rows = await topic_rows(seen(made))
        assert [(row["name"], row["held"]) for row in rows["rows"]] == [("busy", 3), ("%DLQ%full", 1), ("T", 0)]
        assert (rows["count"], rows["held"]) == (3, 4)
        assert {"%DLQ%empty", "%RETRY%g", "TBW102"} <= {row["name"] for row in rows["system"]}


async def test_groups_that_are_behind_come_first_and_one_without_members_is_stuck(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        made.topics.put(Topic("%RETRY%a", 1, 1))
        await made.send(5)
        made.offsets.commit("a", "T", 0, 4)
        made.offsets.commit("b", "T", 0, 1)
        made.offsets.commit("done", "T", 0, 5)
        made.offsets.commit("a", "%RETRY%a", 0, 0)  # nothing to try again: not shown
        made.offsets.commit("a", "deleted", 0, 0)
        made.consumer(1, group="a")
        found = await group_rows(seen(made, NOON + 3000), Ages(made.store))
        shown = [(row["group"], row["lag"], row["age_s"], row["members"], row["stuck"]) for row in found["rows"]]
        assert shown == [("b", 4, 3.0, 0, True), ("a", 1, 3.0, 1, False), ("done", 0, None, 0, False)]
        assert found["count"] == 3


async def test_others_have_their_turns_while_thousands_of_groups_and_clients_are_gathered(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        for number in range(2000):
            made.offsets.commit(f"g{number}", "T", 0, 0)
            made.consumer(number, group=f"g{number}")
        view, ages = seen(made), Ages(made.store)
        assert await turns_of_others(lambda: group_rows(view, ages)) > 2000 // PER_BREATH // 2
        assert await turns_of_others(lambda: client_rows(view)) > 2000 // PER_BREATH // 2


async def test_a_client_is_one_row_with_all_it_does(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        made.consumer(1, group="a", language="JAVA")
        made.consumer(2, group="a", language="GO")
        found = await client_rows(seen(made))
        assert [(row["id"], row["address"], row["groups"]) for row in found["rows"]] == [
            ("c1", "10.0.0.1:1", ["consumes as a"]),
            ("c2", "10.0.0.1:2", ["consumes as a"]),
        ]
        assert dict(found["languages"]) == {"JAVA": 1, "GO": 1}


def test_a_figure_is_the_newest_point_and_none_is_a_dash() -> None:
    points = [Point(NOON - 1000 * ago_s, value) for ago_s, value in ((900, 1), (20, 9), (0, 3))]
    curves = Curves(points, HOUR, NOON, newest=points[-1])
    made = curves.tile("x", "messages_in", lambda value: f"{value:g}", "/s", hint="h")
    assert (made["value"], made["most"], made["unit"]) == ("3", "9/s", "/s")
    assert made["line"].count("M") == 2  # a gap between a quarter of an hour ago and now
    assert not curves.has("temperature")
    empty = Curves([], HOUR, NOON, newest=None).tile("x", "messages_in", lambda value: f"{value:g}", "/s", hint="h")
    assert (empty["value"], empty["most"], empty["unit"], empty["line"]) == ("–", "–", "", "")


@pytest.mark.parametrize(("done", "waiting", "share"), [(0, 0, 100.0), (0, 5, 0.0), (3, 1, 75.0)])
def test_the_share_that_was_shipped(done: int, waiting: int, share: float) -> None:
    assert _share(done, waiting) == share


def test_verdicts_that_cannot_be_read_are_passed_over_and_the_newest_are_shown(tmp_path: Path) -> None:
    assert past_of(tmp_path)["verdicts"] == []
    folder = tmp_path / "verdicts"
    folder.mkdir()
    for number in range(MOST_VERDICTS + 4):
        path = folder / f"{number:03d}.json"
        path.write_text(json.dumps({"verdict": f"v{number}"}))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    for name, raw in (("zz1.json", b"{"), ("zz2.json", b"\xff"), ("zz3.json", b"[]"), ("zz4.json", b"7")):
        (folder / name).write_bytes(raw)
        os.utime(folder / name, (1_700_000_000 + 9, 1_700_000_000 + 9))
    found = past_of(tmp_path)["verdicts"]
    assert 0 < len(found) <= MOST_VERDICTS
    assert all(isinstance(row, dict) for row in found)


def test_a_verdict_that_is_damaged_is_unreadable_and_the_page_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "verdicts"
    folder.mkdir()
    whole: dict[str, object] = {
        "verdict": "clean",
        "start": "2026",
        "seconds": 1.5,
        "log": {"torn_bytes": 0, "quarantined": []},
    }
    (folder / "0.json").write_text(json.dumps(whole))
    wrong: list[dict[str, object]] = [{"log": 5}, {"log": {"torn_bytes": "many"}}, {"seconds": []}]
    wrong.append({"log": {"quarantined": 7}})
    for number, change in enumerate(wrong):
        (folder / f"1{number}.json").write_text(json.dumps({**whole, **change}))
    (folder / "20.json").write_text("[" * 100_000)
    (folder / "21.json").symlink_to("nowhere")
    os.mkfifo(folder / "22.json")
    found = past_of(tmp_path)["verdicts"]
    assert sorted(row["verdict"] for row in found) == ["clean", *5 * ["unreadable"]]


def test_a_quota_is_a_bar_of_what_is_shipped_and_what_is_not() -> None:
    assert quota_of(500, 100, 0) is None
    made = quota_of(500, 100, 1000)
    assert made is not None
    assert (made["shipped_percent"], made["unshipped_percent"], made["over"]) == (40.0, 10.0, False)
    over = quota_of(1800, 1700, 1000)
    assert over is not None
    assert (over["shipped_percent"], over["unshipped_percent"], over["limit_percent"]) == (5.6, 94.4, 55.6)
    assert over["over"]


def test_addresses_are_those_that_others_can_reach() -> None:
    seen = {"lo": ["127.0.0.1", "::1"], "wlan0": ["192.0.2.7", "fe80::1"], "eth0": ["fe80::2"]}
    assert machine_of(HostVitals(), seen)["addresses"] == [("wlan0", ["192.0.2.7"])]
