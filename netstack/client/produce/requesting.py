"""Request and reply over topics. Source: RocketMQ 4.9.8 DefaultMQProducerImpl.request, MessageUtil."""

import uuid

import trio

from netstack.client.errors import NoReply, ReplyImpossible, TimedOut
from netstack.client.messages import Message, ReceivedMessage, with_properties
from netstack.client.produce.sending import Sender

_KEPT = ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")


class Requesting:
    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def request(self, message: Message, timeout_s: float) -> ReceivedMessage:
        """Send and return the reply. Raises NoReply and what sending raises, TimedOut among it."""
        instance = self._sender.instance
        until = trio.current_time() + timeout_s
        correlation_id = str(uuid.uuid4())
        asked = with_properties(
            message,
            CORRELATION_ID=correlation_id,
            REPLY_TO_CLIENT=instance.client_id,
            TTL=str(int(timeout_s * 1000)),
        )
        if instance.routes.get(message.topic) is None:
            route = await self._sender.route(message.topic)  # perhaps the template's, which the instance does not keep
            masters = {addresses[0] for addresses in route.brokers.values() if 0 in addresses}
            await instance.heartbeat(masters)  # or the broker does not know this connection
            if trio.current_time() >= until:
                raise TimedOut(f"route and greeting for a request on {message.topic}", timeout_s)
        arrived = trio.Event()
        replies: list[ReceivedMessage] = []

        def take(reply: ReceivedMessage) -> None:
            replies.append(reply)
            arrived.set()

        instance.requests.replies[correlation_id] = take
        try:
            await self._sender.send(self._sender.make(asked), until - trio.current_time())
            with trio.move_on_at(until):
                await arrived.wait()
        finally:
            instance.requests.forget_reply(correlation_id)
        if not replies:
            raise NoReply(message.topic, timeout_s)
        return replies[0]


def make_reply(request: ReceivedMessage, body: bytes) -> Message:
    """Return the reply to a received request, to be sent by any producer. Raises ReplyImpossible."""
    properties = request.properties
    cluster = properties.get("CLUSTER")
    missing = [name for name in ("CLUSTER", *_KEPT[:2]) if not properties.get(name)]
    if missing or cluster is None:
        raise ReplyImpossible(
            f"{request!r} cannot be replied to: it lacks {', '.join(missing)}; was it sent by request?"
        )
    kept = {name: properties[name] for name in _KEPT if name in properties}
    return Message(f"{cluster}_REPLY_TOPIC", body, properties={**kept, "MSG_TYPE": "reply"})
