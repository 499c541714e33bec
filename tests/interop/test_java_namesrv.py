"""The official Java client with two NameServers of boxes, one of which dies."""

from pathlib import Path

import pytest

from tests.interop.box import Box, until
from tests.interop.client import producer, push_consumer, unique
from tests.interop.jvm import Jvm
from tests.interop.test_java_admin import admin, create

pytestmark = pytest.mark.slow


@pytest.mark.feature("two NameServers: a box registers at both, one dies")
def test_clients_go_on_with_the_name_server_that_is_left(jvm4: Jvm, tmp_path: Path) -> None:
    other = Box(tmp_path / "other", config="[box]\nname = 'other'\n")
    config = f"[box]\nname = 'shop'\n[namesrv]\nregister_at = ['{other.namesrv}']\nregister_s = 10\n"
    shop, topics = Box(tmp_path / "shop", config=config), [unique("twice") for _ in range(2)]
    both = f"{other.namesrv};{shop.namesrv}"
    other.start()
    shop.start()
    try:
        with admin(jvm4, other) as tool:
            until(
                lambda: "shop" in tool.examineBrokerClusterInfo().getBrokerAddrTable(), seconds=40, what="no box here"
            )
        with producer(jvm4, both) as client, admin(jvm4, shop) as tool:
            create(jvm4, tool, shop, topics[0])
            with push_consumer(jvm4, both, topics[0]) as collected:
                for number in range(20):
                    client.send(jvm4.message(topics[0], str(number).encode()))
                assert len(collected.wait_count(20)) == 20
                other.kill()
                create(jvm4, tool, shop, topics[1])  # a route that only the living one can tell
                for number in range(20):
                    client.send(jvm4.message(topics[number % 2], str(number).encode()))
                assert len(collected.wait_count(30)) == 30
            with push_consumer(jvm4, both, topics[1]) as collected:
                assert len(collected.wait_count(10)) == 10
    finally:
        for box in (other, shop):
            if box.running:
                box.stop()
