"""The table of requests: every code has one row, handlers agree with it, the page is made from it."""

from pathlib import Path

import pytest

from appliance.broker import assembly
from appliance.broker.access import request_table
from appliance.broker.access.request_table import ROWS, Loaded, RequestRow, loaded
from appliance.requests import Answer, Handle, RequestPeer, deferred
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand
from netstack.wire.command import request as command
from tests.appliance.box import running_box


@pytest.mark.slow
async def test_what_is_deferred_is_what_the_tools_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[frozenset[int], set[int]]] = []

    def spy(codes: frozenset[int], make: object) -> dict[int, Handle]:
        made.append((frozenset(codes), set(make())))  # type: ignore[operator]
        return {}

    monkeypatch.setattr(assembly, "deferred", spy)
    async with running_box(tmp_path):
        pass
    late = [sorted(loaded(when)) for when in (Loaded.WITH_QUERY, Loaded.WITH_TOOL, Loaded.WITH_POP)]
    wanted = [*late, [RequestCode.QUERY_ASSIGNMENT]]
    assert sorted(map(sorted, (codes for codes, _ in made))) == sorted(wanted)
    assert all(codes == handled for codes, handled in made)


def test_deferred_handlers_are_made_once_by_the_first_request() -> None:
    calls = []

    def handle(request: RemotingCommand, peer: RequestPeer) -> Answer:
        return None

    def make() -> dict[int, Handle]:
        calls.append("made")
        return {1: handle, 2: handle}

    handlers = deferred([1, 2], make)
    assert not calls
    handlers[1](command(1, {}), None)  # type: ignore[arg-type]
    handlers[2](command(2, {}), None)  # type: ignore[arg-type]
    assert calls == ["made"]


def test_every_code_has_one_row() -> None:
    tables = (getattr(request_table, name) for name in vars(request_table) if name.startswith("_"))
    rows = [row for table in tables if isinstance(table, tuple) for row in table if isinstance(row, RequestRow)]
    assert sorted(row.code for row in rows) == sorted(ROWS)
