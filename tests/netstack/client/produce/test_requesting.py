"""Replies over topics: what can be replied to, and what a request leaves behind."""

import pytest

from netstack.client import Instance, Message, NoReply, Producer, make_reply
from netstack.client.errors import ClientError, ReplyImpossible
from netstack.client.messages import ReceivedMessage
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply
from tests.netstack.client.small_cluster import ROUTE, SmallCluster

ASKED = {"CLUSTER": "C", "CORRELATION_ID": "id-1", "REPLY_TO_CLIENT": "c@1", "TTL": "3000"}


def received(**properties: str) -> ReceivedMessage:
    message = ReceivedMessage.__new__(ReceivedMessage)
    message.topic, message.broker_name, message.queue_id, message.queue_offset = "T", "b", 0, 5
    message.store_host, message.log_offset = bytes(8), 0
    message._properties = dict(properties)
    return message


def test_a_reply_goes_to_the_reply_topic_of_the_requests_cluster_under_its_id() -> None:
    reply = make_reply(received(**ASKED, TAGS="not passed on", KEYS="neither"), b"answer")
    assert (reply.topic, reply.body) == ("C_REPLY_TOPIC", b"answer")
    assert dict(reply.properties) == {
        **{name: ASKED[name] for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")},
        "MSG_TYPE": "reply",
    }


def test_a_time_to_live_may_be_missing() -> None:
    asked = {name: value for name, value in ASKED.items() if name != "TTL"}
    assert "TTL" not in make_reply(received(**asked), b"answer").properties


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_what_was_not_sent_by_request_cannot_be_replied_to_and_the_error_says_what_lacks(
    missing: str, how: str
) -> None:
    asked = {name: value for name, value in ASKED.items() if name != missing or how == "empty"}
    asked |= {missing: ""} if how == "empty" else {}
    with pytest.raises(ReplyImpossible, match=f"it lacks {missing}"):
        make_reply(received(**asked), b"answer")


class Responder(SmallCluster):
    """A broker that stores each send, or refuses it."""

    code = 0

    def answer(self, request: RemotingCommand, peer: Peer) -> Answer:
        if request.code != 310:
            return super().answer(request, peer)
        self.seen.append((310, dict(request.ext)))
        ext = {"msgId": "7F00000100002A9F00000000000003E8", "queueId": "0", "queueOffset": "0"}
        return Reply(request.reply(self.code, "on purpose", ext))


@pytest.mark.slow
@pytest.mark.parametrize(("code", "timeout_s"), [(0, 1.5), (13, 60.0)])
async def test_a_request_without_a_reply_leaves_nothing_behind(code: int, timeout_s: float) -> None:
    cluster = Responder()
    cluster.code = code
    async with cluster.instance() as instance, Producer("p", instance=instance) as producer:
        with pytest.raises(NoReply if code == 0 else ClientError):
            await producer.request(Message("T", b"x", properties={"mine": "kept"}), timeout_s=timeout_s)
        assert instance.requests.replies == {}
        sends = [ext for seen, ext in cluster.seen if seen == 310]
        (properties,) = [dict(each.split("\x01") for each in ext["i"].split("\x02") if each) for ext in sends]
        assert (properties["REPLY_TO_CLIENT"], properties["TTL"]) == (instance.client_id, str(int(timeout_s * 1000)))
        assert (properties["mine"], len(properties["CORRELATION_ID"])) == ("kept", 36)
        before = [seen for seen, _ in cluster.seen]
        assert before.index(34) < before.index(310), "the broker must know this connection before the reply comes"


async def test_the_broker_of_a_topic_that_nobody_knows_yet_hears_of_who_asks_before_the_request() -> None:
    cluster = Responder()
    cluster.code = 13

    async with serving(cluster.answer) as port:

        def names(request: RemotingCommand, peer: Peer) -> Answer:
            known = request.ext["topic"] == "TBW102"
            return Reply(request.reply(body=ROUTE % (port, 4, 4)) if known else request.reply(17, "none"))

        async with (
            serving(names) as named,
            Instance(f"127.0.0.1:{named}") as instance,
            Producer("p", instance=instance) as producer,
        ):
            with pytest.raises(ClientError, match="code 13"):
                await producer.request(Message("new", b"x"), timeout_s=60)
    assert cluster.codes().index(34) < cluster.codes().index(310)
