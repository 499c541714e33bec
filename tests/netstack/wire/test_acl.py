"""Signatures equal those of the Java client, and the deviations of real clients are allowed."""

import pytest

from netstack.wire.acl import content, is_signed, sign, verify
from netstack.wire.command import RemotingCommand, decode_command
from netstack.wire.frame import Frame
from tests.netstack.samples import SEND_EXT

SECRET = "12345678"


def signed(code: int, ext: dict[str, str], body: bytes = b"", token: str | None = None) -> RemotingCommand:
    command = RemotingCommand(code, ext=dict(ext), body=body)
    sign(command, "RocketMQ", SECRET, token)
    return command


def test_signatures_equal_javas() -> None:
    assert signed(310, SEND_EXT, b"hello").ext["Signature"] == "UYUzYdwneAoVRZDFbfWfCmJSfBk="
    assert signed(310, SEND_EXT, b"hello", "TOK").ext["Signature"] == "MtbZMsLWo94ZuqCJPOqfNB1fogA="
    assert signed(34, {}).ext["Signature"] == "IUc8rrO/0gDch8CjObLQsW2rsiA="


def test_the_content_is_values_in_the_order_of_their_names() -> None:
    command = signed(310, SEND_EXT, b"hello")
    assert content(command.ext, command.body) == (
        b"RocketMQPGTopicTestTBW10241017000000000000TAGS\x01TagA\x020falsefalsebroker-ahello"
    )


def test_a_signed_request_is_accepted_until_something_changes() -> None:
    command = signed(310, {**SEND_EXT, "bname": "broker-a"}, b"hello")
    command.opaque = 77
    assert verify(command, SECRET)
    assert not verify(command, "87654321")
    assert not verify(RemotingCommand(310, ext=command.ext, body=b"hellp"), SECRET)
    assert not verify(RemotingCommand(310, ext={**command.ext, "e": "2"}, body=b"hello"), SECRET)
    assert not verify(RemotingCommand(310, ext=SEND_EXT, body=b"hello"), SECRET)


def test_numbers_sent_as_json_numbers_verify_with_the_same_signature() -> None:
    made = signed(14, {"queueId": "0", "unitMode": "false", "topic": "T"}).ext["Signature"]
    fields = f'"queueId":0,"unitMode":false,"topic":"T","AccessKey":"RocketMQ","Signature":"{made}"'
    header = f'{{"code":14,"extFields":{{{fields}}}}}'
    assert verify(decode_command(Frame(0, header.encode(), b"")), SECRET)


@pytest.mark.parametrize("signs_the_mark", [False, True])
def test_a_query_by_unique_key_may_be_signed_with_or_without_its_mark(signs_the_mark: bool) -> None:
    mark = {"_UNIQUE_KEY_QUERY": "true"}
    command = signed(12, {"topic": "T", "key": "K"} | (mark if signs_the_mark else {}))
    command.ext |= mark
    assert verify(command, SECRET)
    assert verify(RemotingCommand(11, ext=command.ext), SECRET) is signs_the_mark


def test_go_leaves_the_security_token_out() -> None:
    command = signed(310, SEND_EXT, b"hello")
    command.ext["SecurityToken"] = "TOK"
    assert verify(command, SECRET)


def test_empty_account_fields_are_no_signature() -> None:
    assert not is_signed({"AccessKey": "", "Signature": "", "OnsChannel": ""})
    assert not is_signed({})
    assert is_signed({"AccessKey": "RocketMQ"})
