"""The banner: what weighs most first, five conditions in full and the rest on request, all of it as text."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from appliance.configuration.settings import Config
from appliance.health.conditions import Condition
from appliance.health.health import HealthBoard, Release
from appliance.page.answer import Page
from appliance.page.history import REACHES, CurveBuffer
from appliance.page.vitals import HostVitals
from netstack.web.http import Request
from netstack.wire.command import RemotingCommand
from tests.appliance.admin_bench import bench
from watchdog.history import BootNote

NOON = 1_700_000_000_000


async def nobody(command: RemotingCommand) -> RemotingCommand:
    raise AssertionError(command)


async def banner(tmp_path: Path, found: list[Condition]) -> str:
    """Return the banner of a box that these conditions hold for."""
    note = BootNote(3, "b", "power", "-", "1.0", True, 0)
    async with bench(tmp_path / "store", [NOON]) as made:
        board = HealthBoard(tmp_path / "health.json", lambda: Release("1.0", "-", True), note, sources=[lambda: found])
        facts = {
            "config": Config(),
            "data": tmp_path,
            "tables": made,
            "store": made.store,
            "uplink": None,
            "replication": None,
        }
        watched: Any = SimpleNamespace(**facts, board=board, now_ms=lambda: NOON)
        rows = {name: CurveBuffer(reach) for name, reach in REACHES.items()}
        history: Any = SimpleNamespace(rows=rows, newest=None, vitals=HostVitals())
        answer = await Page(watched, history, nobody).respond(Request("GET", "/", {}, {"host": "localhost"}))
    assert answer.status == 200
    return answer.body.decode().partition("</section>")[0]


async def test_gaps_come_before_the_uplink_and_both_before_what_weighs_less(tmp_path: Path) -> None:
    shown = await banner(
        tmp_path,
        [
            Condition("access_open", "anybody reads", "close it"),
            Condition("dead_letters", "3 dead letters", "read them", "billing"),
            Condition("uplink_down", "no connection", "look"),
            Condition("data_given_up", "12 ranges were given up", "restore the link"),
        ],
    )
    words = ["needs attention", "12 ranges were given up", "no connection", "3 dead letters", "anybody reads"]
    assert sorted(words, key=shown.index) == words
    assert "<details" not in shown


async def test_more_than_five_are_folded_and_nothing_in_them_is_markup(tmp_path: Path) -> None:
    groups = [Condition("dead_letters", f"<b>{number}</b> dead", "read", f"g{number}") for number in range(7)]
    shown = await banner(tmp_path, groups)
    assert "<summary>2 more</summary>" in shown
    assert shown.count("<li>") == 7
    assert "<b>" not in shown.partition("<main>")[2]
