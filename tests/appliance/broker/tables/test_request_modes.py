"""The table of request modes, in Apache's file."""

import pytest

from appliance.broker.tables import request_modes
from appliance.broker.tables.request_modes import PULLS, ConsumeMode, RequestModes
from appliance.testing import MemoryStateFile
from netstack.errors import Refused

POP = ConsumeMode("POP", 3)


async def test_what_was_set_is_there_after_a_restart() -> None:
    file = MemoryStateFile()
    modes = RequestModes(file)
    modes.put("T", "G", POP)
    await modes.flush()
    row = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 3, "topic": "T"}
    assert file.content == {"messageRequestModeMap": {"T": {"G": row}}}
    again = RequestModes(file)
    assert (again.get("T", "G"), again.get("T", "other")) == (POP, PULLS)
    again.drop_topic("T")
    assert again.get("T", "G") == PULLS


def test_rows_that_cannot_be_read_are_left_out() -> None:
    rows = {"T": {"G": {"mode": "PUSH"}, "H": {"mode": "POP", "popShareQueueNum": "x"}, "I": 3}, "U": []}
    modes = RequestModes(MemoryStateFile({"messageRequestModeMap": rows}))
    assert [modes.get("T", group) for group in "GHI"] == [PULLS, ConsumeMode("POP", 0), PULLS]


def test_the_table_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_modes, "MOST", 1)
    modes = RequestModes(MemoryStateFile())
    modes.put("T", "G", POP)
    modes.put("T", "G", PULLS)
    with pytest.raises(Refused, match="which is the limit"):
        modes.put("T", "H", POP)
