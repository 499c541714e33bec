"""Which refused calls are told, and how often."""

import logging
from collections import Counter

import pytest

from appliance.grpc.outcome import Rejection
from appliance.grpc.refusals import Refusals
from netstack.grpc.calls import Call
from netstack.grpc.v2.definition_pb2 import Code
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer

WRONG, DENIED, NOBODY = (
    Rejection(Code.UNAUTHORIZED, "Check signature failed").status,
    Rejection(Code.FORBIDDEN, "key has no permission for topic T").status,
    Rejection(Code.TOPIC_NOT_FOUND, "no topic").status,
)


def call(address: str) -> Call:
    peer = Peer(1, (address, 5), ("10.0.0.2", 8081), Outbox())
    return Call(peer, {b"x-mq-client-id": b"c@1"}, lambda messages, now: True, 0.0)


async def test_a_missing_right_is_told_once_for_an_address_and_all_refusals_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Python's and Node's clients say `failed to fetch topic route` to a wrong secret, and nothing else."""
    counted = Counter[tuple[str, str]]()
    refusals, one, other = Refusals(counted), call("10.0.0.1"), call("10.0.0.9")
    with caplog.at_level(logging.WARNING):
        for each, status in ((one, WRONG), (one, WRONG), (one, NOBODY), (other, WRONG), (one, DENIED)):
            refusals.note("QueryRoute", each, status)
        refusals.note_settings(other, NOBODY)
    assert counted == {
        ("QueryRoute", "UNAUTHORIZED"): 3,
        ("QueryRoute", "TOPIC_NOT_FOUND"): 1,
        ("QueryRoute", "FORBIDDEN"): 1,
        ("Telemetry", "TOPIC_NOT_FOUND"): 1,
    }
    told = [record.getMessage().partition(" client=")[::2] for record in caplog.records]
    assert [(event, text.partition(" reason=")[2]) for event, text in told] == [
        ("event=grpc_request_refused method=QueryRoute peer=10.0.0.1", "'Check signature failed'"),
        ("event=grpc_request_refused method=QueryRoute peer=10.0.0.9", "'Check signature failed'"),
        ("event=grpc_request_refused method=QueryRoute peer=10.0.0.1", "'key has no permission for topic T'"),
        ("event=grpc_settings_refused peer=10.0.0.9", "'no topic'"),
    ]
