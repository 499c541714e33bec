"""Codes of the broker become codes of apache.rocketmq.v2."""

import pytest

from appliance.grpc.outcome import Rejection, ok, status_of
from netstack.errors import Refused
from netstack.grpc.v2.definition_pb2 import Code
from netstack.wire.codes import ResponseCode


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
        (ResponseCode.TOPIC_NOT_EXIST, Code.TOPIC_NOT_FOUND),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.NO_PERMISSION, Code.FORBIDDEN),
        (ResponseCode.SERVICE_NOT_AVAILABLE, Code.INTERNAL_SERVER_ERROR),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_a_refusal_of_the_broker_has_a_code_and_its_text(code: int, wanted: int) -> None:
    status = status_of(Refused(code, "why"))
    assert (status.code, status.message) == (wanted, "why")


def test_a_rejection_is_told_as_it_is() -> None:
    assert status_of(Rejection(Code.ILLEGAL_TOPIC, "a b")).code == Code.ILLEGAL_TOPIC
    assert ok().code == Code.OK
