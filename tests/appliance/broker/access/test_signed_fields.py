"""Which fields a signed change may carry."""

from pathlib import Path

import pytest

from appliance.broker.access.request_table import ROWS
from appliance.broker.access.signed_fields import allowed, foreign, header_of
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import request
from tests.appliance.broker.access.test_replays import OPERATOR, STRANGER, admins, box, peer, verdict


def test_the_header_of_every_request_exists() -> None:
    for code, row in ROWS.items():
        assert (header_of(row) is None) == (row.header == ""), code
        assert allowed(code) >= {"AccessKey", "Signature"}


@pytest.mark.parametrize("replay", ["address", "strict"])
def test_an_invented_field_does_not_take_up_what_was_signed_for_another_code(tmp_path: Path, replay: str) -> None:
    permissions = box(tmp_path, replay=replay)
    looked = admins(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, group="G", topic="T")
    assert verdict(permissions, looked, peer(OPERATOR, tls=True)) == ""
    signing = {name: looked.ext[name] for name in ("AccessKey", "Signature")}
    stolen = request(Code.DELETE_SUBSCRIPTIONGROUP, {**signing, "groupName": "G", "invented": "T"})
    assert "invented" in verdict(permissions, stolen, peer(OPERATOR, 2, tls=True))


def test_what_stock_tools_send_belongs_to_its_code(tmp_path: Path) -> None:
    permissions = box(tmp_path)
    newer = {"ns": "x", "nsd": "true", "bname": "box", "oway": "false", "lo": "false"}
    for code, fields in (
        (Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
        (Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "C"}),
        (Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "removeOffset": "true", "cleanOffset": "true"}),
        (Code.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": "T", "group": "G", "timestamp": "1", "isForce": "true"}),
        (Code.RESUME_CHECK_HALF_MESSAGE, {"topic": "T", "msgId": "x"}),
        (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}),
    ):
        assert verdict(permissions, admins(code, **fields, **newer), peer(OPERATOR)) == "", code


def test_a_field_of_another_code_is_foreign() -> None:
    assert foreign(Code.DELETE_TOPIC_IN_BROKER, ["AccessKey", "topic", "Signature"]) is None
    assert foreign(Code.DELETE_TOPIC_IN_BROKER, ["topic", "groupName"]) == "groupName"
    assert "topic" not in allowed(Code.CLEAN_UNUSED_TOPIC)


def test_a_body_does_not_take_up_what_was_signed_for_another_code(tmp_path: Path) -> None:
    permissions, here = box(tmp_path), peer(OPERATOR)
    looked = admins(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, group="G", topic="T")
    assert verdict(permissions, looked, here) == ""
    signing = {name: looked.ext[name] for name in ("AccessKey", "Signature")}
    stolen = request(Code.DELETE_TOPIC_IN_BROKER, signing | {"topic": "G"}, b"T")
    assert "has no body" in verdict(permissions, stolen, here)


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE_V2, Code.PULL_MESSAGE])
def test_what_an_admin_sends_and_pulls_is_no_change_when_it_comes_from_elsewhere(tmp_path: Path, code: int) -> None:
    permissions = box(tmp_path)
    data = admins(code, commitOffset="0", consumerGroup="CG", topic="T")
    assert verdict(permissions, data, peer(OPERATOR)) == ""
    assert verdict(permissions, data, peer(STRANGER, 2)) == "", "as every send and pull"
    signing = {name: data.ext[name] for name in ("AccessKey", "Signature")}
    stolen = request(Code.DELETE_TOPIC_IN_BROKER, {**signing, "bname": "0CG", "topic": "T"})
    assert "may be a copy" in verdict(permissions, stolen, peer(STRANGER, 2))
