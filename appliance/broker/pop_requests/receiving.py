"""POP_MESSAGE (200050): messages of a group for a time, or a wait for them. Source: RocketMQ 5.5.0 PopMessageProcessor.

The time of the wait counts from the arrival of the request, whatever the client's clock says: a box may have started
without one.
"""

from appliance.broker.filter.kept_filters import Filtered, KeptFilters
from appliance.broker.pop.engine import MOST_MESSAGES, PollingFull, PopAnswer, PopEngine
from appliance.broker.pop.retry_topics import TopicKind
from appliance.broker.pop.taking import MOST_ATTEMPT_ID, PopRequest, PopSlice
from appliance.broker.pop_requests.checks import PopChecks
from appliance.broker.pop_requests.receipts import (
    ORDERED_QUEUE,
    PLAIN_QUEUE,
    PopReceipt,
    message_offset_info,
    order_count_info,
    start_offset_info,
)
from appliance.broker.pop_requests.retry_records import under_topic
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.shares import counted_for
from appliance.requests import Answer, AsyncReply, Handle, RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers_pop import PopMessageHeader

LONGEST_POLL_MS = 300_000
LONGEST_INVISIBLE_MS = 12 * 3_600_000  # as the 5.x clients ask for at most


class Receiving:
    """Handles receives; one object per broker."""

    def __init__(self, engine: PopEngine, checks: PopChecks, arrivals: Arrivals, filters: KeptFilters) -> None:
        self._engine, self._checks, self._arrivals, self._filters = engine, checks, arrivals, filters

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        return {RequestCode.POP_MESSAGE: self.handle}

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Give messages away for a time, or wait for them. Raises Refused."""
        header = PopMessageHeader.from_ext(request.ext)
        request.body, request.remark = b"", None  # nobody reads them, and the request may wait for long
        self._checks.readable("pop")
        self._check(header)
        topic = self._checks.receiver(header, peer)
        kept = self._checks.filter(topic.name, header.expression, header.expression_type, peer.remote[0])
        wanted = PopRequest(
            header.consumer_group,
            topic.name,
            header.queue_id,
            header.max_count,
            header.invisible_ms,
            min(max(header.poll_ms, 0), LONGEST_POLL_MS) / 1000,
            *kept.accepts,
            from_end=header.init_mode == 1,
            owner=str(peer.id),
            order=header.order,
            attempt_id=(header.attempt_id or "")[:MOST_ATTEMPT_ID],
            address=counted_for(peer.remote[0]),
        )
        request.ext = {}  # read; as long as this waits it would stay
        return self._later(request, wanted, kept, peer)

    def _later(self, request: RemotingCommand, wanted: PopRequest, kept: Filtered, peer: RequestPeer) -> AsyncReply:
        """Return the answer; one that may wait is a parked pull from now on."""
        self._filters.check(kept)
        waits = wanted.poll_s > 0 and self._arrivals.may_park(peer)
        full = wanted.poll_s > 0 and not waits
        if not kept.is_small:
            kept = self._filters.enter(kept)
            tags, record = kept.accepts
            wanted = wanted._replace(accepts=tags, accepts_record=record)
        if waits:
            self._arrivals.enter(peer)

        async def run() -> RemotingCommand:
            try:
                asked = wanted if waits else wanted._replace(poll_s=0.0)
                return await self._receive(request, asked, peer, full=full)
            finally:
                if waits:
                    self._arrivals.leave(peer)

        if kept.is_small:
            return AsyncReply(run, pull=waits, reads=True)
        return AsyncReply(lambda: self._filters.during(run(), kept.key), pull=waits, reads=True)

    def _check(self, header: PopMessageHeader) -> None:
        if header.max_count > MOST_MESSAGES:
            text = f"the broker[{self._checks.rules.address}] pop message's num is greater than {MOST_MESSAGES}"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        if header.max_count < 1 or not 0 <= header.invisible_ms <= LONGEST_INVISIBLE_MS:
            text = f"maxMsgNums {header.max_count}, invisibleTime {header.invisible_ms}: at least one message is needed"
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{text}, for 0 to {LONGEST_INVISIBLE_MS} ms")

    async def _receive(
        self, request: RemotingCommand, wanted: PopRequest, peer: RequestPeer, *, full: bool
    ) -> RemotingCommand:
        try:
            answer = await self._engine.receive(wanted, peer)
        except PollingFull:
            answer, full = PopAnswer(0, [], 0), True
        ext = self._ext(wanted, answer)
        if not answer.slices:
            code = ResponseCode.POLLING_FULL if full else ResponseCode.POLLING_TIMEOUT
            return request.reply(code, "no message", ext)
        records = (record for found in answer.slices for record in self._records(found, wanted, answer.pop_ms))
        return request.reply(ResponseCode.SUCCESS, "FOUND", ext, b"".join(records))

    def _ext(self, wanted: PopRequest, answer: PopAnswer) -> dict[str, str]:
        ext = {
            "popTime": str(answer.pop_ms),
            "invisibleTime": str(wanted.invisible_ms),
            "reviveQid": str(ORDERED_QUEUE if wanted.order else PLAIN_QUEUE),
            "restNum": str(answer.rest),
        }
        if answer.slices:
            ext["startOffsetInfo"] = start_offset_info(answer.slices)
            ext["msgOffsetInfo"] = message_offset_info(answer.slices)
            if wanted.order:
                ext["orderCountInfo"] = order_count_info(answer.slices)
        return ext

    def _records(self, found: PopSlice, wanted: PopRequest, pop_ms: int) -> list[bytes]:
        """Return the records of a take; those of a retry topic come under the topic that was asked for."""
        if found.kind is TopicKind.NORMAL:
            return found.records
        start, queue_id = found.offsets[0], found.queue.queue_id
        rewritten = []
        for offset, record in zip(found.offsets, found.records, strict=True):
            receipt = PopReceipt(start, pop_ms, wanted.invisible_ms, PLAIN_QUEUE, found.kind, queue_id, offset)
            rewritten.append(under_topic(record, wanted.topic, receipt.text(self._checks.rules.broker)))
        return rewritten
