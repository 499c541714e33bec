"""A member as clients and tools see it."""

from pathlib import Path

import pytest

from appliance.group.leadership import FOLLOWER, LEADER, LeadershipState
from appliance.group.member_role import MemberRole
from appliance.health.health_file import describe
from appliance.replication.role import leader_host
from appliance.replication.slaves import SlaveSeen, SlavesSeen
from appliance.testing import FakePeer
from netstack.errors import Refused
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand
from storage_driver.store import MessageStore, open_store
from tests.appliance.box import send
from tests.appliance.group.hand_driven import HandDriver, HandGroup
from tests.storage_driver.test_store import Clock, small

LEADS, FOLLOWS = (
    LeadershipState(LEADER, 4, "a", "10.0.0.1:10911", ready=True),
    LeadershipState(FOLLOWER, 4, "b", "10.0.0.2:10911"),
)


def member(store: MessageStore, state: LeadershipState) -> MemberRole:
    group = HandGroup()
    group.addresses = {"a": "10.0.0.1:10912", "b": "10.0.0.2:10912"}
    driver = group.drivers["a"] = HandDriver(group, "a", store)
    group.drivers["b"] = driver  # it is there
    driver.leadership.set(state)
    return MemberRole(driver, store, ha_port=10912, serves=state.serves)


async def test_a_leader_has_the_number_zero_and_followers_their_places(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        leader, follower = member(store, LEADS), member(store, FOLLOWS)
        assert (leader.broker_id, follower.broker_id) == (0, 1)
        assert leader.addresses("h:1") == {0: "h:1", 2: "10.0.0.2:10911"}
        assert follower.addresses("h:1") == {0: "10.0.0.2:10911", 1: "h:1"}
        assert member(store, LeadershipState()).addresses("h:1") == {1: "h:1"}
        assert (leader_host(leader, "10.0.0.1"), leader_host(follower, "10.0.0.1")) == ("", "10.0.0.2")
        assert leader_host(member(store, LeadershipState()), "10.0.0.1") == ""
        leader.floating = follower.floating = "10.0.0.9"
        assert leader.addresses("h:1")[0] == "10.0.0.9:1"
        assert leader.addresses("127.0.0.1:1")[0] == "127.0.0.1:1", "its administrator stays one"
        assert follower.addresses("h:1")[0] == "10.0.0.9:10911"
        reached = ("10.0.0.1", "10.0.0.2", "10.0.0.9", "127.0.0.1")  # the second by way of a follower
        assert [leader_host(leader, each) for each in reached] == ["10.0.0.9", "10.0.0.9", "", ""]
        assert leader.own_slaves is None
        assert leader.loops(()) == ()


async def test_a_follower_refuses_with_14_and_says_who_leads(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        assert Code.SEND_MESSAGE_V2 not in member(store, LEADS).handlers()
        for state, words in ((FOLLOWS, "b at 10.0.0.2:10911 leads its group"), (LeadershipState(), "has no leader")):
            with pytest.raises(Refused, match=words) as caught:
                member(store, state).handlers()[Code.RECALL_MESSAGE](send("T"), FakePeer())
            assert caught.value.code == 14


async def test_apaches_question_about_copies_is_answered_on_either_side(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        for state in (LEADS, FOLLOWS):
            role = member(store, state)
            answer = role.handle_status(RemotingCommand(Code.GET_BROKER_HA_STATUS), FakePeer())
            body = fastjson.loads(answer.response.body)  # type: ignore[union-attr]
            assert body["master"] is state.serves
            assert len(body["haConnectionInfo"]) == body["inSyncSlaveNums"] == int(state.serves)
            assert role.told()["leader"] == state.leader
            assert (role.told()["copies"], role.told()["copies_there"]) == (2, 2 if state.serves else None)
            names = {name for name, _, _ in role.series()}
            assert {"leader", "term", "member_connected", "member_lag_bytes", "member_lag_seconds"} <= names
            assert ("links_refused_total", 2, {"reason": "garbage"}) in list(role.series())


async def test_of_a_copy_that_was_not_heard_in_this_term_no_distance_is_told(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        role = member(store, LEADS)
        role._driver.known = False  # type: ignore[attr-defined]
        answer = role.handle_status(RemotingCommand(Code.GET_BROKER_HA_STATUS), FakePeer())
        assert fastjson.loads(answer.response.body)["haConnectionInfo"] == []  # type: ignore[union-attr]
        assert "member_lag_bytes" not in {name for name, _, _ in role.series()}
        assert "b is connected, what it has is not known yet" in describe({"replication": role.told()})


async def test_stock_slaves_of_a_member_are_told_with_what_they_report(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        role = member(store, LEADS)
        assert "slaves" not in role.told()
        role._driver.served = SlavesSeen([SlaveSeen("10.0.0.7:4000", 0, 0, 1.0)], {}, 1, 0)  # type: ignore[attr-defined]
        assert "Slaves    10.0.0.7:4000 reports 0, has everything" in describe({"replication": role.told()})
        assert ("slave_lag_bytes", store.committed, {"slave": "10.0.0.7"}) in list(role.series())
