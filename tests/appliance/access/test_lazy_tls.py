"""TLS at a box on loopback: nothing is made until a program greets in TLS, then once for all who wait for it."""

import shutil
from pathlib import Path

import pytest
import trio

from appliance.access.lazy_tls import LazyTls
from netstack.errors import ChannelClosed
from netstack.serving.channel import open_channel
from netstack.serving.tls import client_context
from netstack.testing import echo, serving
from netstack.wire.codes import RequestCode
from netstack.wire.command import request
from tests.appliance.access.test_guard import speaks
from tests.appliance.box import running_box

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl: apt install openssl")


@pytest.mark.slow
@needs_openssl
async def test_a_box_on_loopback_makes_its_certificate_when_the_first_program_greets_in_tls(tmp_path: Path) -> None:
    made = tmp_path / "tls/box.crt"
    async with running_box(tmp_path) as box:
        assert await speaks(box, tls=False)
        assert not made.exists()
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(_speaks_tls, box.broker_port)
        first = made.read_bytes()
        assert await speaks(box, tls=True, trust=made)
    async with running_box(tmp_path) as box:
        assert await speaks(box, tls=True, trust=made)
    assert made.read_bytes() == first


async def _speaks_tls(port: int) -> None:
    async with open_channel("127.0.0.1", port, tls=client_context()) as line:
        await line.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}))


async def test_where_no_certificate_can_be_made_tls_is_closed_and_plain_text_is_served() -> None:
    tried: list[int] = []
    door = LazyTls(lambda: tried.append(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.run)
        async with serving(echo, tls=door) as port:
            for _ in range(2):
                with pytest.raises((OSError, ChannelClosed)):
                    await _speaks_tls(port)
            async with open_channel("127.0.0.1", port) as line:
                await line.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}))
        nursery.cancel_scope.cancel()
    assert (tried, door.statistics()) == ([1], None)
