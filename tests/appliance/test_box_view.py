"""A box by itself, without watchdog, uplink, TLS or slaves: whoever looks at it has an answer and changes nothing."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from appliance.box_view import BoxView
from appliance.broker.assembly import assemble
from appliance.broker.broker_tables import make_tables
from appliance.configuration.config import load_config
from appliance.metrics.gather import Gatherer
from appliance.page.detail import topic_values
from appliance.page.history import CurveHistory
from appliance.page.overview import Overview
from appliance.requests import Responder
from appliance.testing import FakePeer, answered, small_store, wall_ms
from netstack.serving.governor import Governor
from netstack.wire.command import RemotingCommand
from tests.appliance.box import FACTS, ask, send


class Alone:
    """A broker over a real store, and the view of it that observers are handed."""

    def __init__(self, view: BoxView, responder: Responder) -> None:
        self.view, self._responder, self._peer = view, responder, FakePeer()

    async def ask(self, request: RemotingCommand) -> None:
        assert (await answered(self._responder(request, self._peer))).code == 0

    def state(self) -> object:
        tables = self.view.tables
        saved = (tables.topics.to_json(), tables.groups.to_json(), tables.offsets.table(), tables.resent.to_json())
        return self.view.store.end, repr(saved)

    async def metrics(self) -> dict[str, float]:
        text = (await Gatherer(self.view).text()).decode()
        families = text_string_to_metric_families(text)
        return {sample.name: sample.value for family in families for sample in family.samples}


@asynccontextmanager
async def alone(data: Path) -> AsyncGenerator[Alone]:
    config = load_config("[box]\nname = 'box'\n", source="test", facts=FACTS)
    async with small_store(data) as small:
        store = small.store
        tables = make_tables(config, store, small.arrivals, now_ms=wall_ms)
        broker = assemble(config, store, tables, "127.0.0.1:1", now_ms=wall_ms)
        responder = Responder(broker.handlers)
        seen = (broker.waiting, Governor(), {"broker": responder.statistics}, None, None, wall_ms)
        yield Alone(BoxView(config, data, store, tables, *seen), responder)


async def test_numbers_are_those_of_the_parts_and_what_is_not_there_has_none(tmp_path: Path) -> None:
    async with alone(tmp_path) as box:
        for _ in range(3):
            await box.ask(send("Engine"))
        found = await box.metrics()
        assert found["rocketbox_stored_messages_total"] == 3
        absent = (
            "rocketbox_uplink_",
            "rocketbox_tls_",
            "rocketbox_replication_",
            "rocketbox_health_",
            "rocketbox_proof_",
        )
        assert [name for name in found if name.startswith(absent)] == []


async def test_the_page_of_such_a_box_lists_topics_and_groups_and_has_no_uplink(tmp_path: Path) -> None:
    async with alone(tmp_path) as box:
        await box.ask(send("Engine"))
        await box.ask(ask(15, consumerGroup="CG", topic="Engine", queueId=0, commitOffset=1))
        values = await Overview(box.view, CurveHistory(box.view)).values()
        assert "Engine" in [row["name"] for row in values["topics"]["rows"]]
        assert "CG" in repr(values["groups"])
        assert values["uplink"] is None


async def test_a_look_changes_nothing(tmp_path: Path) -> None:
    async with alone(tmp_path) as box:
        await box.ask(send("Engine"))
        before = box.state()
        await box.metrics()
        await Overview(box.view, CurveHistory(box.view)).values()
        assert await topic_values(box.view, "Engine") is not None
        assert await topic_values(box.view, "NotThere") is None
        assert box.state() == before
