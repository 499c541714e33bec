"""The handlers of POP answer the codes whose rows say that they are made with its first request."""

from pathlib import Path

from appliance.broker.access.request_table import Loaded, loaded
from tests.appliance.box import ask, connected, running_box


async def test_every_code_of_pop_is_answered(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        for code in loaded(Loaded.WITH_POP):
            answer = await channel.ask(ask(code))
            assert "not supported" not in (answer.remark or ""), code
