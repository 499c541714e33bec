"""Asking producers about half messages that were never decided.

A half that is asked about is stored again with its count raised, so the count survives a restart and the half queue can
move on. Asked is any producer of the half's group that has the key that sent it and can be told; while there is none,
nothing is counted.
Source: RocketMQ 4.9.8 TransactionalMessageServiceImpl.check, AbstractTransactionalMessageCheckListener.
"""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

import trio

from appliance.broker.delay.redelivery import (
    REAL_QUEUE,
    REAL_TOPIC,
    draft_of,
    put_patiently,
    records_in,
    rest_after,
    rest_after_read,
)
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.topics import CHECKED_TOO_OFTEN_TOPIC
from appliance.broker.transactions.half_messages import (
    CHECK_TIMES,
    HALF_QUEUE,
    IMMUNITY,
    ONE_RECORD_BYTES,
    OWNER,
    PREPARED_OFFSET,
    PRODUCER_GROUP,
    UNIQUE_KEY,
    TransactionEnds,
    ends,
)
from appliance.broker.transactions.half_table import OPEN
from appliance.requests import Answer, AsyncReply, Handle, RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import CheckTransactionHeader
from storage_driver.errors import Busy, Full, LogFailed, MessageIllegal, StorageError
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import (
    Message,
    MessageQueue,
    StoredMessage,
    encode_record,
    encode_topic,
    message_id,
    parse_message_id,
)

log = logging.getLogger("appliance.broker")

GIVEN_UP_QUEUE = MessageQueue(CHECKED_TOO_OFTEN_TOPIC, 0)
ADVANCE_S = 1.0
REST_S = 5.0  # while no half message is there
LONGEST_ROUND_S = 60.0
MOST_LOGGED = 10  # groups in a round, those with the most halves


class TransactionChecks:
    """Looks at the open halves every `check_s` and asks about those that are old enough."""

    def __init__(
        self,
        transactions: TransactionEnds,
        clients: ClientTable,
        *,
        now_ms: Callable[[], int],
        make_topic: Callable[[str], object],
    ) -> None:
        self._transactions, self._clients, self._now_ms, self._make_topic = transactions, clients, now_ms, make_topic
        self._store, self._table, self._rules = transactions.store, transactions.table, transactions.rules
        self._turn: Counter[str] = Counter()
        self._unasked: Counter[str] = Counter()  # in this round
        self._oldest = (-1, 0)  # the oldest half that may be open, and its log offset
        self._next = 0  # the half at which a round ended that took too long

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        return {RequestCode.RESUME_CHECK_HALF_MESSAGE: self.handle_resume}

    def floor(self) -> int:
        """Return the log offset below which every half message is decided: retention must not pass it."""
        if self._oldest[0] >= 0 and self._table.base >= self._store.max_offset(HALF_QUEUE):
            return self._store.committed
        return self._oldest[1]  # of an older base it is lower, which is safe

    async def run(self) -> None:
        """Learn what is open, then check until cancelled."""
        await self._learn()
        if self._store.has_queue(GIVEN_UP_QUEUE):  # of a broker that did not make its topic, or was killed before
            self._make_given_up()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._advance_often)
                while True:
                    await trio.sleep(self._rules.check_s)
                    await self._guarded_round()
        except* LogFailed as failures:
            await rest_after(_first(failures), "transaction_checks", self._store)

    def _make_given_up(self) -> None:
        """Make the topic of what was given up, if the limit of topics has room; what is stored stays there for it."""
        try:
            self._make_topic(CHECKED_TOO_OFTEN_TOPIC)
        except Refused as exc:
            log.warning("event=topic_not_made topic=%s reason=%r", CHECKED_TOO_OFTEN_TOPIC, exc.remark)

    async def _learn(self) -> None:
        """Learn what is open; one bad sector must not end the broker."""
        while True:
            try:
                await self._transactions.recover()
                await self._find_oldest()
            except OSError as exc:
                await rest_after_read(exc, "transaction_checks")
            else:
                return

    async def _advance_often(self) -> None:
        while True:
            await trio.sleep(ADVANCE_S if self._table.base < self._store.max_offset(HALF_QUEUE) else REST_S)
            try:
                self._transactions.pay_owed()
            except StorageError:
                continue  # owed until the disk takes it; senders hear of it at each request
            self._transactions.advance()
            try:
                await self._find_oldest()
            except OSError as exc:
                await rest_after_read(exc, "transaction_checks")

    async def _find_oldest(self) -> None:
        base = self._table.base
        if base >= self._store.max_offset(HALF_QUEUE):
            self._oldest = (base, self._store.committed)
        if base == self._oldest[0]:
            return
        found = await self._store.read(HALF_QUEUE, base, max_count=1, max_bytes=1)
        half = next(records_in(found.chunks), None)
        if half is not None:
            self._oldest = (base, half.log_offset)

    async def _guarded_round(self) -> None:
        try:
            await self._round()
        except (Busy, Full, LogFailed, OSError) as exc:
            if self._store.failure is not None:
                raise
            log.warning("event=transaction_checks_postponed reason=%r", str(exc))

    async def _round(self) -> None:
        """Look once at every half that is open now, whatever its time: the clock may have been ahead.

        A round that takes too long ends, and the next one goes on there: those behind many are looked at, too.
        """
        half, end = max(self._table.base, self._next), self._store.max_offset(HALF_QUEUE)
        with trio.move_on_after(LONGEST_ROUND_S) as scope:
            while half < end:
                if (open_half := self._table.next_open(half)) != half:
                    half = open_half
                    continue
                found = await self._store.read(HALF_QUEUE, half, max_count=1, max_bytes=ONE_RECORD_BYTES)
                stored = next(records_in(found.chunks), None)
                if stored is None or stored.queue_offset != half:
                    after = stored.queue_offset if stored else max(found.next_offset, half + 1)
                    self._table.skip_to(after)
                    text = "event=half_messages_lost from=%d to=%d reason='the log no longer has them'"
                    log.error(text, half, after)
                    half = after
                    continue
                await self._look_at(stored)
                half += 1
        self._next = half if scope.cancelled_caught else 0
        self._transactions.advance()
        self._log_unasked()

    def _log_unasked(self) -> None:
        for group, count in self._unasked.most_common(MOST_LOGGED):
            text = "event=half_messages_wait reason='no producer of their group is connected' group=%s count=%d"
            log.info(text, group, count)
        self._unasked.clear()

    async def _look_at(self, half: StoredMessage) -> None:
        """Discard a half that was asked about too often, ask about one that is old enough, leave the others."""
        if self._table.state(half.queue_offset) != OPEN:
            return  # decided while it was read
        properties, times = half.property_map, _number(half.property_map.get(CHECK_TIMES), 0)
        age_ms, running_ms = self._now_ms() - self._made_ms(half), self._store.age_ms(half.log_offset, half.stored_ms)
        kept_ms = min(age_ms, running_ms)  # a step of the clock ends none
        if age_ms < 0:  # the clock was ahead
            age_ms = running_ms
        if times >= self._rules.most_checks or kept_ms > self._rules.oldest_ms:
            await self._discard(half, times)
        elif self._earlier_is_decided(properties.get(PREPARED_OFFSET)):
            self._transactions.close(half.queue_offset)
        elif age_ms >= self._immunity_ms(properties.get(IMMUNITY)):
            await self._ask(half, times + 1)

    def _made_ms(self, half: StoredMessage) -> int:
        """Return when a half was made: by its producer's clock, unless that is plainly wrong."""
        plausible = 0 <= half.stored_ms - half.born_ms <= self._rules.oldest_ms
        return half.born_ms if plausible else half.stored_ms

    def _immunity_ms(self, seconds: str | None) -> int:
        own_ms = _number(seconds, -1) * 1000
        return own_ms if own_ms >= 0 else self._rules.timeout_ms

    def _earlier_is_decided(self, earlier: str | None) -> bool:
        """A half that another broker stored again while it was immune names the offset it had before."""
        offset = _number(earlier, -1)
        return offset >= self._table.base and self._table.state(offset) != OPEN

    async def _discard(self, half: StoredMessage, times: int) -> None:
        draft = draft_of(half)
        draft.properties.pop(OWNER, None)
        draft.topic, draft.queue_id = GIVEN_UP_QUEUE
        self._make_given_up()
        await put_patiently(self._store, draft.to_message())
        if self._table.state(half.queue_offset) == OPEN:
            self._transactions.close(half.queue_offset)
            self._transactions.discarded.append(half.queue_offset)
            log.warning(
                "event=half_message_discarded offset=%d checks=%d born_ms=%d", half.queue_offset, times, half.born_ms
            )

    async def _ask(self, half: StoredMessage, times: int) -> None:
        """Store the half again with its new count and ask a producer of its group about the copy."""
        group = half.property_map.get(PRODUCER_GROUP, "")
        properties = half.property_map
        producers = [peer for peer in self._clients.producers(group) if peer.listens and ends(peer, properties)]
        if not producers:
            self._unasked[group] += 1
            return
        asked = self._store_again(half, times)
        await self._store.wait_committed(self._store.end)
        self._turn[group] += 1
        producer = producers[self._turn[group] % len(producers)]
        try:
            self._tell(producer, half, asked)
        except Exception:  # of one producer or one half: the others are asked
            log.exception("event=producer_not_asked group=%s peer=%s next_step=report_this", group, producer)

    def _store_again(self, half: StoredMessage, times: int) -> "_AskedHalf":
        """Store an open half once more and close the old one; return where the copy is.

        One that has no room for the count stays where it is: it is asked about until it is too old.
        """
        draft = draft_of(half)
        draft.properties[CHECK_TIMES] = str(times)
        try:
            placed = self._store.put(draft.to_message())
        except MessageIllegal:
            return _AskedHalf(half.queue_offset, half.log_offset, half.stored_ms, None)
        self._table.replace(half.queue_offset, placed.queue_offset)
        self._transactions.close(half.queue_offset)
        return _AskedHalf(placed.queue_offset, placed.log_offset, placed.stored_ms, times)

    def _tell(self, producer: RequestPeer, half: StoredMessage, placed: "_AskedHalf") -> None:
        unique = half.property_map.get(UNIQUE_KEY)
        offset_id = message_id(self._rules.store_host, placed.log_offset)
        header = CheckTransactionHeader(placed.queue_offset, placed.log_offset, unique, unique, offset_id)
        producer.tell(RequestCode.CHECK_TRANSACTION_STATE, header.to_ext(), self._as_sent(half, placed))

    def _as_sent(self, half: StoredMessage, placed: "_AskedHalf") -> bytes:
        """Return the half as a record of the topic it was sent to; it tells which check this is, 1 for the first."""
        properties = half.property_map
        topic, queue_id = properties.get(REAL_TOPIC, half.topic), _number(properties.get(REAL_QUEUE), 0)
        draft = draft_of(half)
        draft.properties.pop(OWNER, None)
        if placed.times is not None:
            draft.properties[CHECK_TIMES] = str(placed.times)
        message = Message(*draft.to_message()._replace(topic=topic, queue_id=queue_id))
        return encode_record(
            message,
            encode_topic(topic),
            placed.queue_offset,
            placed.log_offset,
            stored_ms=placed.stored_ms,
            store_host=self._rules.store_host,
        )

    def handle_resume(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """RESUME_CHECK_HALF_MESSAGE (323): count the checks of a half message from zero again. Raises Refused."""
        try:
            _, log_offset = parse_message_id(request.ext.get("msgId", ""))
        except ValueError as exc:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(exc)) from exc
        return AsyncReply(partial(self._resume, request, log_offset))

    async def _resume(self, request: RemotingCommand, log_offset: int) -> RemotingCommand:
        record = await self._store.record_at(log_offset)
        half = next(records_in([record]), None) if record else None
        if half is None or half.topic != HALF_QUEUE.topic or self._table.state(half.queue_offset) != OPEN:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"no open half message at log offset {log_offset}")
        self._store_again(half, 0)
        await self._store.wait_committed(self._store.end)
        return request.reply()


class _AskedHalf(NamedTuple):
    """Where a half is about which a producer is asked; `times` is None when it has no room for the count."""

    queue_offset: int
    log_offset: int
    stored_ms: int
    times: int | None


def _number(text: str | None, otherwise: int) -> int:
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        return otherwise


def _first(failures: BaseExceptionGroup[LogFailed]) -> LogFailed:
    found = failures.exceptions[0]
    return found if isinstance(found, LogFailed) else _first(found)
