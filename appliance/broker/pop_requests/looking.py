"""PEEK_MESSAGE (200052), NOTIFICATION (200054), POLLING_INFO (200055): what is there, without taking it.

Source: RocketMQ 5.5.0 PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor.
"""

from collections.abc import Awaitable, Callable

from appliance.broker.filter.kept_filters import KeptFilters
from appliance.broker.pop.engine import PollingFull, PopEngine
from appliance.broker.pop.taking import MOST_ATTEMPT_ID, PopRequest
from appliance.broker.pop_requests.checks import PopChecks
from appliance.broker.pop_requests.receiving import LONGEST_POLL_MS
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.shares import counted_for
from appliance.requests import Answer, AsyncReply, Handle, Reply, RequestPeer
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.ext import bool_text
from netstack.wire.headers_pop import NotificationHeader, PeekMessageHeader, PollingInfoHeader
from storage_driver.record import MessageQueue


class Looking:
    """Handles those who only look; one object per broker."""

    def __init__(self, engine: PopEngine, checks: PopChecks, arrivals: Arrivals, filters: KeptFilters) -> None:
        self._engine, self._checks, self._arrivals, self._filters = engine, checks, arrivals, filters

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        return {
            RequestCode.PEEK_MESSAGE: self.handle_peek,
            RequestCode.NOTIFICATION: self.handle_notification,
            RequestCode.POLLING_INFO: self.handle_polling_info,
        }

    def handle_peek(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Return the next messages of a group. Raises Refused."""
        header = PeekMessageHeader.from_ext(request.ext)
        self._checks.readable("peeking")
        topic = self._checks.receiver(header, peer)
        most = max(header.max_count, 1)
        wanted = PopRequest(header.consumer_group, topic.name, header.queue_id, most, 0, owner=str(peer.id))
        return AsyncReply(lambda: self._peek(request, wanted, peer), reads=True)

    async def _peek(self, request: RemotingCommand, wanted: PopRequest, peer: RequestPeer) -> RemotingCommand:
        answer = await self._engine.peek(wanted, peer)
        ext = {"popTime": str(answer.pop_ms), "invisibleTime": "0", "reviveQid": "0", "restNum": str(answer.rest)}
        if not answer.slices:
            return request.reply(ResponseCode.PULL_NOT_FOUND, "no message", ext)
        body = b"".join(record for found in answer.slices for record in found.records)
        return request.reply(ResponseCode.SUCCESS, "FOUND", ext, body)

    def handle_notification(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Tell when there is something to receive. Raises Refused."""
        header = NotificationHeader.from_ext(request.ext)
        self._checks.readable("peeking")
        topic = self._checks.receiver(header, peer)
        kept = self._checks.filter(topic.name, header.expression, header.expression_type, peer.remote[0])
        poll_s = min(max(header.poll_ms, 0), LONGEST_POLL_MS) / 1000
        wanted = PopRequest(header.consumer_group, topic.name, header.queue_id, 1, 0, poll_s, kept.accepts[0])
        attempt_id = (header.attempt_id or "")[:MOST_ATTEMPT_ID]
        wanted = wanted._replace(owner=str(peer.id), order=header.order, attempt_id=attempt_id)
        wanted = wanted._replace(address=counted_for(peer.remote[0]))
        self._filters.check(kept)
        waits = poll_s > 0 and self._arrivals.may_park(peer)
        if not waits:
            return AsyncReply(lambda: self._notice(request, wanted._replace(poll_s=0.0), full=poll_s > 0))
        request.body, request.ext, request.remark = b"", {}, None
        if kept.is_small:
            return AsyncReply(self._parked(request, wanted, peer), pull=True)
        key, _, (tags, _), _ = self._filters.enter(kept)
        run = self._parked(request, wanted._replace(accepts=tags), peer)
        return AsyncReply(lambda: self._filters.during(run(), key), pull=True)

    def _parked(
        self, request: RemotingCommand, wanted: PopRequest, peer: RequestPeer
    ) -> Callable[[], Awaitable[RemotingCommand]]:
        """Return what waits; it is counted from now on."""
        self._arrivals.enter(peer)

        async def run() -> RemotingCommand:
            try:
                return await self._notice(request, wanted)
            finally:
                self._arrivals.leave(peer)

        return run

    async def _notice(self, request: RemotingCommand, wanted: PopRequest, *, full: bool = False) -> RemotingCommand:
        try:
            there = await self._engine.notice(wanted)
        except PollingFull:
            there, full = False, True
        return request.reply(ext={"hasMsg": bool_text(there), "pollingFull": bool_text(full and not there)})

    def handle_polling_info(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Tell how many receivers of a group wait. Raises Refused."""
        header = PollingInfoHeader.from_ext(request.ext)
        self._checks.readable("peeking")
        topic = self._checks.receiver(header, peer)
        queue = MessageQueue(topic.name, header.queue_id) if header.queue_id >= 0 else None
        waiting = self._engine.waits.count(header.consumer_group, topic.name, queue)
        return Reply(request.reply(ext={"pollingNum": str(waiting)}))
