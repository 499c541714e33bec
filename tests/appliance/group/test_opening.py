"""What is configured becomes a member; what cannot be one is refused at the start."""

from pathlib import Path

import pytest
import trio

from appliance.configuration.config import HostFacts, load_config
from appliance.configuration.settings import Config
from appliance.errors import ConfigError
from appliance.group.opening import open_driver, plan_of
from netstack.serving.server import open_listeners
from storage_driver.consensus.members import Members
from storage_driver.consensus.rules import Rules
from storage_driver.errors import StoreRefused
from storage_driver.store import open_store
from tests.appliance.group.certificates import certificates, needs_openssl
from tests.storage_driver.test_store import Clock, small
from tests.waiting import until

CONFIG = """
[box]
name = "press"
[replication]
role = "member"
[group]
member = "a"
members = ["a=127.0.0.1:{port}", "b=127.0.0.1:20912", "w=127.0.0.1:30912 witness"]
preferred = "b"
timing = 0.5
wait_ms = 700
catch_up_mib_s = 20
certs = "{certs}"
"""


def configured(certs: Path, port: int = 10912) -> Config:
    return load_config(CONFIG.format(port=port, certs=certs), facts=HostFacts(1 << 40, "", "host"))


def test_the_configuration_is_all_that_a_member_needs(tmp_path: Path) -> None:
    plan = plan_of(configured(tmp_path), b"host")
    assert (plan.group, plan.member, plan.wait_ms) == ("press", "a", 700)
    assert (plan.of_member().catch_up_bytes_s, plan.of_member().wait_s) == (20 << 20, 0.7)
    assert plan.rules == Rules("automatic", "both", copies=2, preferred="b", scale=0.5)
    assert plan.first_members() == Members(("a", "b"), ("w",))
    assert {name: (peer.port, peer.dialed) for name, peer in plan.of_member().directory.peers().items()} == {
        "b": (20912, False),
        "w": (30912, True),
    }
    assert plan._replace(member="b").of_member().directory.peers()["a"].dialed, "of two boxes the later one dials"
    assert plan.members["b"].client == "127.0.0.1:20911"


@pytest.mark.slow
@needs_openssl
async def test_a_member_runs_as_long_as_it_is_open_and_a_lost_vote_stops_it(tmp_path: Path) -> None:
    listeners = await open_listeners("127.0.0.1", 0)
    config = configured(certificates() / "a", listeners[0].socket.getsockname()[1])
    store_config = small(tmp_path, shared=True, copies_only="it follows")
    async with open_store(store_config, now_ms=Clock()) as store:
        async with open_driver(config, store, listeners) as driver:
            await until(lambda: driver.leadership.current.role == "candidate")
            assert store.when_acknowledged != store.when_committed
            assert [each.member for each in driver.view.members()] == ["a", "b", "w"]
        vote = store_config.root / "rocketbox" / "vote"
        vote.write_bytes(bytes(vote.stat().st_size))
        with pytest.raises(StoreRefused, match="let it join under a new id"):
            async with open_driver(config, store, listeners):
                raise AssertionError("it has no vote")
        vote.unlink()
        with pytest.raises(ConfigError, match=r"box\.crt"):
            async with open_driver(configured(tmp_path), store, listeners):
                raise AssertionError("it has no certificate")
    await trio.lowlevel.checkpoint()
