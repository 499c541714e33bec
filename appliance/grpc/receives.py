"""ReceiveMessage: messages of a group for a time, as a stream: a status, the messages, when they left.

Source: RocketMQ 5.3 ReceiveMessageActivity, ReceiveMessageResponseStreamWriter, PopMessageResultFilterImpl.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import trio

from appliance.broker.filter.kept_filters import Filtered, KeptFilters
from appliance.broker.filter.subscriptions import Subscription
from appliance.broker.pop.engine import PollingFull, PopAnswer, PopEngine
from appliance.broker.pop.pop_table import Handle
from appliance.broker.pop.taking import MOST_ATTEMPT_ID, PopRequest, PopSlice
from appliance.broker.rights import owner_of
from appliance.broker.tables.shares import counted_for
from appliance.grpc.answer_room import AnswerRoom
from appliance.grpc.clients import ClientSession, ClientSessions
from appliance.grpc.consumers import Consumers, max_attempts
from appliance.grpc.kept_settings import gather
from appliance.grpc.methods import NOT_STORED, REFUSALS, decoded, status_told
from appliance.grpc.outcome import Rejection, ok
from appliance.grpc.receipts import receipt_of
from appliance.grpc.received_messages import fill_delivery, fill_message, unpacked_size
from appliance.grpc.refusals import Refusals
from appliance.grpc.renewals import GIVEN_BACK_MS, INVISIBLE_MS
from appliance.grpc.resources import group_of, topic_of
from appliance.grpc.send_shape import check_small
from netstack.errors import Refused
from netstack.grpc.calls import Call
from netstack.grpc.status import CallFailed, GrpcStatus
from netstack.grpc.v2.definition_pb2 import Code, Status
from netstack.grpc.v2.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse
from storage_driver.record import StoredMessage, decode_record

log = logging.getLogger("appliance.grpc")

LONGEST_POLL_S = 20.0
ON_ITS_WAY_S = 0.5  # before the deadline of a call, which some clients set to their polling time: its answer leaves
LONGEST_INVISIBLE_MS = 12 * 3_600_000
MOST_BATCH = 32
ANY_QUEUE = -1  # simple consumers name one queue after the other, and would wait at an empty one
PORTION = 64 << 10
WAITS_BYTES = 4 << 10  # a larger request does not wait for the settings of its client: it would be kept meanwhile
NOTHING = Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")
SUCCEEDED = ReceiveMessageResponse(status=ok()).SerializeToString()


class ReceiveRules(NamedTuple):
    """What receives need of the configuration."""

    broker: str
    min_invisible_ms: int = 10_000
    min_poll_s: float = 5.0


class _Asked(NamedTuple):
    """What a receiver wants, and what decides over each message it gets."""

    wanted: PopRequest
    kept: Filtered
    most_attempts: int
    renewed: bool


class _Found(NamedTuple):
    """One message as it travels, and what names its delivery."""

    handle: Handle
    raw: bytes


class Receives:
    """Handles receives; `engine` gives the engine, made when the first is asked."""

    def __init__(
        self,
        rules: ReceiveRules,
        engine: Callable[[], PopEngine],
        sessions: ClientSessions,
        consumers: Consumers,
        filters: KeptFilters,
        *,
        refusals: Refusals,
    ) -> None:
        self._rules, self._engine, self._sessions = rules, engine, sessions
        self._consumers, self._filters, self._refusals = consumers, filters, refusals

    async def handle(self, call: Call) -> None:
        """Serve one receive. Raises CallFailed."""
        try:
            session, asked = await self._read(call)
            await self._receive(session, call, asked)
        except REFUSALS as exc:
            await self._refuse(call, status_told(exc))
        except PollingFull:
            await self._refuse(call, Status(code=Code.TOO_MANY_REQUESTS, message="polling full"))

    async def _refuse(self, call: Call, status: Status) -> None:
        self._refusals.note("ReceiveMessage", call, status)
        await self._say(call, status)

    async def _read(self, call: Call) -> tuple[ClientSession, _Asked]:
        """Return who receives what, all that is kept while it waits for messages. Raises as `_asked`, CallFailed."""
        raw = await call.receive()
        if raw is None:
            raise CallFailed(GrpcStatus.INVALID_ARGUMENT, "no message")
        check_small(raw)
        session = self._sessions.of(call)
        if len(raw) <= WAITS_BYTES:
            await self._sessions.await_settings(session)
        return session, self._asked(session, call, decoded(ReceiveMessageRequest, raw))

    def _asked(self, session: ClientSession, call: Call, request: Any) -> _Asked:
        """Return what a request wants. Raises Rejection, Refused."""
        topic_name, group_name = topic_of(request.message_queue.topic), group_of(request.group)
        poll_s = polling_s(request, call.deadline - trio.current_time(), self._rules.min_poll_s)
        invisible_ms = _invisible_ms(request, self._rules.min_invisible_ms)
        topic, group = self._consumers.receiver(session, group_name, topic_name)
        kept = self._consumers.filter(session, topic_name, request.filter_expression)
        self._admit(session, request)  # last: whose settings were refused is told why
        self._filters.check(kept)
        kept = kept if kept.is_small else self._filters.enter(kept)
        wanted = PopRequest(
            group=group_name,
            topic=topic.name,
            queue_id=ANY_QUEUE,
            most=min(max(request.batch_size, 1), MOST_BATCH),
            invisible_ms=invisible_ms,
            poll_s=poll_s,
            accepts=kept.accepts[0],
            accepts_record=kept.accepts[1],
            from_end=True,
            owner=f"{owner_of(session)}/{session.client_id}",  # a client id is a name inside its key
            order=group.consume_orderly,
            attempt_id=request.attempt_id[:MOST_ATTEMPT_ID],
            in_groups=True,
            address=counted_for(session.remote[0]),
            weigh=unpacked_size,
        )
        return _Asked(wanted, kept, max_attempts(group), request.auto_renew)

    def _admit(self, session: ClientSession, request: Any) -> None:
        """Raise Rejection, Refused unless the client consumes.

        One without settings does so by its receive. After a restart of the box Go and Python (5.1) give them again
        within five minutes, Rust (5.0) never.
        """
        known = session.settings
        if known is not None and not known.consumes:
            raise Rejection(Code.UNRECOGNIZED_CLIENT_TYPE, "the settings of this client are those of a producer")
        if known is None or known.lacks(request.message_queue.topic.name):
            gathered = gather(request, known)
            self._consumers.join(session, gathered.read())
            self._sessions.settle(session, gathered)

    async def _receive(self, session: ClientSession, call: Call, asked: _Asked) -> None:
        """Wait for messages and send them. What is not sent comes again soon."""
        engine, wanted, room = self._engine(), asked.wanted, self._sessions.room(call.peer)
        waiting = engine.receive(wanted, room, parked=call.peer)
        answer = await (waiting if asked.kept.is_small else self._filters.during(waiting, asked.kept.key))
        size = sum(len(record) for found in answer.slices for record in found.records)
        room.hold(size)
        left = {
            self._handle(wanted, found, offset, answer): None for found in answer.slices for offset in found.offsets
        }
        messages: list[_Found] = []
        try:
            gone = asked.renewed and session.settings is None  # nobody would renew them, or give them back
            messages = [] if gone else await self._fit(asked, answer, left)
            if not messages:
                await self._say(call, NOTHING)
                return
            if asked.renewed:
                session.heard()
                for each in messages:
                    session.leases.add(each.handle, call.peer)
                call.taken_back = partial(self._taken_back, session, [each.handle for each in messages])
            await self._send(call, room, messages, left)
        finally:
            room.hold(-size)
            for each in messages if left else ():  # the call has failed, and clients may drop what they got of it
                session.leases.drop(each.handle)
            for handle in left:  # not sent: the client has gone, or reads nothing
                engine.renew(handle, GIVEN_BACK_MS)

    def _taken_back(self, session: ClientSession, handles: Sequence[Handle]) -> None:
        """The client ended a call while the end of its answer was on the way: it has dropped what came."""
        for handle in handles:
            if session.leases.drop(handle):
                self._engine().renew(handle, GIVEN_BACK_MS)

    async def _send(self, call: Call, room: AnswerRoom, messages: list[_Found], left: dict[Handle, None]) -> None:
        together, more = portions(messages), [SUCCEEDED]
        with room.reading() as reading:
            for number, portion in enumerate(together, 1):
                more += [each.raw for each in portion]
                last = number == len(together)
                await call.send(*more, *([_now()] if last else []), last=last)
                for each in portion:
                    del left[each.handle]
                more = []
                reading.took()
        if reading.scope.cancelled_caught:
            silent_s = trio.current_time() - reading.took_s
            raise CallFailed(GrpcStatus.CANCELLED, f"the client took nothing for {silent_s:.0f} s")

    async def _fit(self, asked: _Asked, answer: PopAnswer, left: dict[Handle, None]) -> list[_Found]:
        """Return the messages that are delivered; those tried too often become dead letters, other tags are passed.

        `left`: the handles of all, in their order; without those of messages that are not delivered.
        """
        engine, wanted, fit, handles = self._engine(), asked.wanted, list[_Found](), iter(list(left))
        for found in answer.slices:
            for stored, offset, before in _records(found):
                properties, handle = stored.property_map, next(handles)
                attempt = stored.reconsume_times + before + 1
                if attempt > asked.most_attempts:
                    await self._give_up(handle)
                    del left[handle]
                elif not _is_wanted(asked.kept.subscription, properties):
                    engine.acknowledge(handle)
                    del left[handle]
                else:
                    receipt = receipt_of(found, offset, answer.pop_ms, wanted.invisible_ms, ordered=wanted.order)
                    response = ReceiveMessageResponse()
                    fill_message(response.message, stored, properties, wanted.topic)
                    fill_delivery(response.message, attempt, receipt.text(self._rules.broker), wanted.invisible_ms)
                    fit.append(_Found(handle, response.SerializeToString()))
        return fit

    async def _give_up(self, handle: Handle) -> None:
        """Make a message a dead letter; one that cannot be stored so comes again later: the others are delivered."""
        try:
            await self._engine().dead_letter(handle)
        except (Refused, *NOT_STORED) as exc:
            log.warning("event=dead_letter_waits group=%s offset=%d reason=%r", handle[0].group, handle[1], str(exc))

    @staticmethod
    def _handle(wanted: PopRequest, found: PopSlice, offset: int, answer: PopAnswer) -> Handle:
        return PopEngine.handle(wanted.group, found.queue, offset, answer.pop_ms)

    async def _say(self, call: Call, status: Status) -> None:
        await call.send(ReceiveMessageResponse(status=status).SerializeToString(), _now(), last=True)


def _now() -> bytes:
    """Return the last message of an answer: when it left."""
    response = ReceiveMessageResponse()
    stamp = response.delivery_timestamp
    stamp.seconds, stamp.nanos = divmod(time.time_ns(), 1_000_000_000)
    return bytes(response.SerializeToString())


def portions(messages: Sequence[_Found]) -> list[list[_Found]]:
    """Return messages that are sent together, one or about PORTION bytes: the client's windows take one by one."""
    found, size = list[list[_Found]](), PORTION
    for each in messages:
        if size + len(each.raw) > PORTION:
            found.append([])
            size = 0
        found[-1].append(each)
        size += len(each.raw)
    return found


def _records(found: PopSlice) -> Iterator[tuple[StoredMessage, int, int]]:
    """Give each message, its queue offset, and how often it was delivered before, beyond what its record says."""
    for record, offset, before in zip(found.records, found.offsets, found.deliveries, strict=True):
        yield decode_record(record, check_crc=False), offset, before


def _is_wanted(subscription: Subscription, properties: Mapping[str, str]) -> bool:
    """Tell whether a message has one of the tags; tags alone were looked at by their hashes."""
    if not subscription.by_tags or not subscription.tags:
        return True
    return properties.get("TAGS", "") in subscription.tags


def polling_s(request: Any, left_s: float, least_s: float) -> float:
    """Return how long to wait for a first message. Raises Rejection when the call is over before."""
    asked_s = LONGEST_POLL_S
    if request.HasField("long_polling_timeout"):
        asked_s = request.long_polling_timeout.ToMilliseconds() / 1000
    wanted_s = min(max(asked_s, least_s), LONGEST_POLL_S)
    if left_s < least_s - ON_ITS_WAY_S:
        text = "The deadline time remaining is not enough for polling, please check network condition"
        raise Rejection(Code.ILLEGAL_POLLING_TIME, text)
    return max(min(wanted_s, left_s - ON_ITS_WAY_S), 0.0)


def _invisible_ms(request: Any, least_ms: int) -> int:
    if request.auto_renew:
        return INVISIBLE_MS
    asked_ms = int(request.invisible_duration.ToMilliseconds())
    check_invisible(asked_ms, least_ms)
    return asked_ms


def check_invisible(asked_ms: int, least_ms: int) -> None:
    """Raise Rejection, as Apache words it, unless a time is in its bounds."""
    if asked_ms < least_ms:
        text = f"the invisibleTime is too small. min is {least_ms}"
    elif asked_ms > LONGEST_INVISIBLE_MS:
        text = f"the invisibleTime is too large. max is {LONGEST_INVISIBLE_MS}"
    else:
        return
    raise Rejection(Code.ILLEGAL_INVISIBLE_TIME, f"{text}, asked for {asked_ms} ms")
