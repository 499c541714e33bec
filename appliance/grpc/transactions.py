"""EndTransaction and RecallMessage: the second word on a message that rests.

Source: RocketMQ 5.3 EndTransactionActivity, RecallMessageActivity. There the proxy remembers half messages for 30 s;
here the transaction id says where the half is.
"""

from functools import partial
from typing import Any

from appliance.broker.delay.recall import Recalls
from appliance.broker.intake import not_durable
from appliance.broker.rights import Perm, of_topic
from appliance.broker.transactions.half_messages import TransactionEnds
from appliance.grpc.clients import ClientSession
from appliance.grpc.methods import Later
from appliance.grpc.outcome import Rejection, ok, status_of
from appliance.grpc.resources import topic_of
from netstack.grpc.calls import Call, Deferred
from netstack.grpc.v2.definition_pb2 import Code, TransactionResolution, TransactionSource
from netstack.grpc.v2.service_pb2 import EndTransactionResponse, RecallMessageResponse
from netstack.wire.headers import EndTransactionHeader, RecallHeader
from storage_driver.interfaces import Marks
from storage_driver.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

ID_LENGTH, DIGITS = 32, 16
VERDICTS = {TransactionResolution.COMMIT: TRANSACTION_COMMIT, TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK}


class SecondWords:
    """Handles the ends of transactions, and recalls."""

    def __init__(self, ends: TransactionEnds, recalls: Recalls, store: Marks) -> None:
        self._ends, self._recalls, self._when_durable = ends, recalls, store.when_acknowledged

    def end(self, session: ClientSession, call: Call, request: Any) -> Any:
        """Commit or roll back a half message. Raises Rejection, Refused."""
        topic = topic_of(request.topic)
        session.require(of_topic(topic, Perm.PUB))
        queue_offset, log_offset = _place_of(request.transaction_id)
        verdict = VERDICTS.get(request.resolution)
        if verdict is None:
            return EndTransactionResponse(status=ok())
        header = EndTransactionHeader(
            producer_group=topic,
            queue_offset=queue_offset,
            log_offset=log_offset,
            verdict=verdict,
            from_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
            message_id=request.message_id,
            transaction_id=request.transaction_id,
        )
        return Later(partial(self._ended, header, session))

    async def _ended(self, header: EndTransactionHeader, session: ClientSession) -> EndTransactionResponse:
        await self._ends.end(header, session.signer)
        return EndTransactionResponse(status=ok())

    def recall(self, session: ClientSession, call: Call, request: Any) -> Any:
        """Take back a delayed message. Raises Rejection, Refused."""
        topic = topic_of(request.topic)
        session.require(of_topic(topic, Perm.PUB))
        header = RecallHeader(topic=topic, recall_handle=request.recall_handle)
        message_id, mark = self._recalls.recall(header, session.born_host)
        response = RecallMessageResponse(status=ok(), message_id=message_id)
        return Deferred(self._when_durable, mark, response.SerializeToString(), _not_recalled)


def _not_recalled(reason: str) -> bytes:
    return bytes(RecallMessageResponse(status=status_of(not_durable(reason))).SerializeToString())


def transaction_id(queue_offset: int, log_offset: int) -> str:
    """Return what names a half message: where it is. Nothing needs to be remembered for it."""
    return f"{queue_offset:016X}{log_offset:016X}"


def _place_of(transaction_id: str) -> tuple[int, int]:
    """Return where a half message is, by queue and by log. Raises Rejection."""
    try:
        if len(transaction_id) != ID_LENGTH:
            raise ValueError
        return int(transaction_id[:DIGITS], 16), int(transaction_id[DIGITS:], 16)
    except ValueError as exc:
        text = f"transaction id {transaction_id[:ID_LENGTH]!r}: this box gives {ID_LENGTH} hex digits"
        raise Rejection(Code.INVALID_TRANSACTION_ID, text) from exc
