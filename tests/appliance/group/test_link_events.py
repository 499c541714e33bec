"""Frames of members become wishes, news and events; what only a leader may say is taken from it alone."""

from collections import deque
from pathlib import Path

import pytest
import trio

from appliance.group.copies.pieces import LogPiece
from appliance.group.links.frames import HAND_OVER, MISSING, RELAY, WISH_REFUSED, LinkFrame
from appliance.group.links.link import LinkEnded
from appliance.group.relay.relayed_clients import RelayedClients
from appliance.group.wishes import LEAD, MOST_WISHES, Wish
from storage_driver.consensus.members import Members
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.members import group
from tests.appliance.group.test_consensus_driver import pair
from tests.waiting import until
from uplink_spark.errors import ProtocolError
from uplink_spark.wire.cbor import encode_map

pytestmark = [pytest.mark.slow, needs_openssl]


async def test_what_members_wish_is_bounded_and_what_a_leader_alone_may_say_is_not_taken_from_others(
    tmp_path: Path,
) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, b = await pair(made)
        link, heard = a.driver.links.link("b"), a.driver._heard
        assert link is not None
        for _ in range(1000):
            await heard.take(link, LinkFrame(HAND_OVER, encode_map({})))
            assert len(heard._wishes._waiting) <= MOST_WISHES
        assert list(heard._wishes._waiting) == [Wish(LEAD, "b")]
        await heard.take(link, LinkFrame(MISSING, b"not what a leader says: b leads nobody"))
        with pytest.raises(ProtocolError):
            await heard.take(link, LinkFrame(WISH_REFUSED, encode_map({})))
        to_a = b.driver.links.link("a")
        assert to_a is not None
        await b.driver._heard.take(to_a, LinkFrame(WISH_REFUSED, encode_map({"text": "x" * 100})))
        assert b.driver._heard._wishes.answer == "x" * 100


async def test_which_boxes_take_clients_is_heard_of_boxes_and_a_box_without_the_port_takes_none(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, _ = await pair(made)
        link, heard, relayed = a.driver.links.link("b"), a.driver._heard, RelayedClients()
        assert link is not None
        assert not heard.hello().relays
        with pytest.raises(LinkEnded, match=r"grpc\.port is off"):
            await heard.take_client("b", None, LinkFrame(RELAY, b""))  # type: ignore[arg-type]
        heard._rules = heard._rules._replace(relayed=relayed)
        hello = heard.hello()
        assert hello.relays
        heard.begun(link, hello._replace(relays=False, segment_bytes=0))  # a witness
        assert relayed.all_take
        heard.begun(link, hello._replace(relays=False))
        assert not relayed.takes("b")
        heard.begun(link, hello)
        assert relayed.all_take
        relayed._brought["b"] = {scope := trio.CancelScope()}
        heard.ended(link)
        assert scope.cancel_called, "what b brings ends with its link"
        heard.begun(link, hello._replace(relays=False))
        a.driver._rules = heard._rules
        a.driver._know(Members(("a",), ()))
        assert relayed.all_take
        assert not relayed._brought


async def test_what_was_read_ahead_for_a_member_goes_with_its_link(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, _ = await pair(made)
        feed = a.driver._heard._shipping.feed
        feed._ahead["b"] = deque([LogPiece(1 << 40, b"x", 1 << 41)])
        await made.stop("b")
        await until(lambda: "b" not in feed._ahead)
