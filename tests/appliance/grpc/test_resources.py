"""Names of topics and groups in requests."""

import pytest

from appliance.grpc.outcome import Rejection
from appliance.grpc.resources import group_of, topic_of
from netstack.grpc.v2.definition_pb2 import Code, Resource


def test_names_pass_whatever_their_namespace() -> None:
    assert topic_of(Resource(name="T", resource_namespace="n")) == "T"
    assert group_of(Resource(name="G|1%")) == "G|1%"


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_no_topic_of_a_client(name: str) -> None:
    with pytest.raises(Rejection) as refused:
        topic_of(Resource(name=name))
    assert refused.value.code == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("name", ["", "a b", "x" * 256, "CID_RMQ_SYS_TRANS"])
def test_no_group_of_a_client(name: str) -> None:
    with pytest.raises(Rejection) as refused:
        group_of(Resource(name=name))
    assert refused.value.code == Code.ILLEGAL_CONSUMER_GROUP
