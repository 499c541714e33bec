"""The pull task of one held queue: one request under way, flow control before each.

Source: RocketMQ 4.9.8 DefaultMQPushConsumerImpl, PullAPIWrapper.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import trio

from netstack.client.consume.assignment import Assignment
from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import OffsetStore, starting_offset
from netstack.client.consume.subscriptions import Subscriptions, keeps
from netstack.client.errors import BrokerRefused, BrokerUnknown, ClientError, reading
from netstack.client.instance import Instance
from netstack.client.messages import ReceivedMessage
from netstack.client.records import decode_records
from netstack.client.routes import subscribe_address
from netstack.errors import ProtocolError, Refused
from netstack.wire.bodies import SubscriptionData
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import PullMessageReply
from netstack.wire.json_body import MessageQueue
from netstack.wire.message_headers import PullMessageHeader

FLOW_CONTROL_S = 0.02
ANSWERED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
UNHEARD = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)
_log = logging.getLogger("netstack.client")


async def ask_pull(
    instance: Instance, broker_name: str, header: PullMessageHeader, *, wanted_id: int, timeout_s: float
) -> tuple[RemotingCommand, PullMessageReply]:
    """Return the answer to a pull and its header. Raises BrokerRefused for other codes, ClientError."""
    found = subscribe_address({broker_name: instance.addresses_of(broker_name)}, broker_name, wanted_id)
    if found is None:
        raise BrokerUnknown(broker_name)
    address, slave = found
    if slave:
        header.sys_flag &= ~PullMessageHeader.COMMIT_OFFSET
    code = RequestCode.PULL_MESSAGE
    answer = await instance.ask(address, code, header, timeout_s=timeout_s)
    server, what = f"{broker_name} ({address})", f"pull of {header.topic}"
    if answer.code not in ANSWERED:
        raise BrokerRefused(server, answer.code, answer.remark, what)
    with reading(server, what):
        return answer, PullMessageReply.from_ext(answer.ext)


@dataclass(frozen=True, slots=True)
class Pulled:
    """What one pull found; `code` tells found from not found, filtered away and offset moved."""

    code: int
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_id: int = 0


async def pull_once(
    instance: Instance,
    group: str,
    queue: MessageQueue,
    queue_offset: int,
    wanted: SubscriptionData,
    *,
    max_count: int,
    hold_s: float,
    timeout_s: float,
    wanted_id: int = 0,
) -> Pulled:
    """Return what a queue holds from an offset on; the subscription travels along. Raises ClientError."""
    flags = PullMessageHeader.SUBSCRIPTION | PullMessageHeader.LITE_PULL | (PullMessageHeader.SUSPEND if hold_s else 0)
    version = 0 if wanted.expression_type == "TAG" else wanted.sub_version
    hold_ms = int(hold_s * 1000)
    header = PullMessageHeader(
        *(group, queue.topic, queue.queue_id, queue_offset, max_count, flags, 0, hold_ms, version),
        *(wanted.sub_string, wanted.expression_type),
    )
    answer, reply = await ask_pull(instance, queue.broker_name, header, wanted_id=wanted_id, timeout_s=timeout_s)
    messages: list[ReceivedMessage] = []
    if answer.code == ResponseCode.SUCCESS:
        keep = keeps(wanted)
        with reading(queue.broker_name, f"pull of {queue.topic}"):
            messages = [each for each in decode_records(answer.body, queue.broker_name) if keep is None or keep(each)]
    ends = reply.min_offset, reply.max_offset
    return Pulled(answer.code, messages, reply.next_begin_offset, *ends, reply.suggest_broker_id)


class Puller:
    """Pulls for one push consumer. `arrived` gets new messages of a queue."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscriptions: Subscriptions,
        offsets: OffsetStore,
        options: ConsumerOptions,
        *,
        assignment: Callable[[], Assignment],
        arrived: Callable[[HeldQueue, list[ReceivedMessage]], None],
    ) -> None:
        self._instance, self._group, self._options = instance, group, options
        self._subscriptions, self._offsets = subscriptions, offsets
        self._assignment, self._arrived = assignment, arrived
        self._resumed: trio.Event | None = None

    def pause(self) -> None:
        """Make no further pulls; what is under way still arrives."""
        if self._resumed is None:
            self._resumed = trio.Event()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    async def run(self, held: HeldQueue) -> None:
        """Pull until the queue is dropped; failures are logged and tried again."""
        with held.scope:
            while not held.dropped:
                held.pulled_at = trio.current_time()
                try:
                    await self._wait_allowed(held)
                    await self._pull(held)
                except BrokerRefused as refused:
                    await self._wait_after(held, refused)
                except (ClientError, Refused, ProtocolError) as error:
                    _log.warning("event=pull_failed queue=%s reason=%s", held.queue, error)
                    self._instance.suspect_routes()
                    await trio.sleep(self._options.failure_delay_s)

    async def _wait_after(self, held: HeldQueue, refused: BrokerRefused) -> None:
        if refused.code == ResponseCode.FLOW_CONTROL:
            await trio.sleep(FLOW_CONTROL_S)
            return
        _log.warning("event=pull_refused queue=%s reason=%s", held.queue, refused)
        if refused.code in UNHEARD:
            await self._instance.heartbeat()
            self._subscriptions.announced()
        await trio.sleep(self._options.failure_delay_s)

    async def _wait_allowed(self, held: HeldQueue) -> None:
        """Return once the consumer runs, the cache has room and an ordered queue is locked and positioned."""
        while self._resumed is not None:
            held.paused = True
            await self._resumed.wait()
        held.paused = False
        share = self._assignment().share(held.queue.topic)
        if not held.has_room(self._options, share):
            held.paused = True  # waits for the application, so it is not stuck
            await held.wait_until(lambda: held.has_room(self._options, share))
            held.paused = False
            held.pulled_at = trio.current_time()
        if self._options.orderly and not self._options.broadcasting:
            await held.wait_until(lambda: held.lock.held)
            if held.lock.fresh:
                held.next_offset = await starting_offset(self._instance, held.queue, self._offsets, self._options)
                held.lock.fresh = False

    def _header(self, held: HeldQueue) -> PullMessageHeader:
        queue, options = held.queue, self._options
        wanted = self._subscriptions.get(queue.topic)
        if wanted is None:
            raise ClientError(f"{queue.topic} is no longer subscribed")
        committed = 0 if options.broadcasting else max(0, self._offsets.get(queue))
        flags = PullMessageHeader.SUSPEND | (PullMessageHeader.COMMIT_OFFSET if committed else 0)
        inside = options.subscription_in_pulls and not wanted.class_filter_mode
        return PullMessageHeader(
            self._group,
            queue.topic,
            queue.queue_id,
            held.next_offset,
            options.pull_batch,
            flags | (PullMessageHeader.SUBSCRIPTION if inside else 0),
            committed,
            int(options.hold_s * 1000),
            self._subscriptions.pull_version(queue.topic),
            wanted.sub_string if inside else None,
            wanted.expression_type,
        )

    async def _pull(self, held: HeldQueue) -> None:
        answer, reply = await ask_pull(
            self._instance,
            held.queue.broker_name,
            self._header(held),
            wanted_id=held.suggested_id,
            timeout_s=self._options.pull_timeout_s,
        )
        held.suggested_id = reply.suggest_broker_id
        held.pulled_at = trio.current_time()
        if held.dropped:
            return
        if answer.code == ResponseCode.SUCCESS:
            self._take_in(held, answer.body, reply)
            if self._options.pull_interval_s:
                await trio.sleep(self._options.pull_interval_s)
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
            _log.warning(
                "event=offset_moved queue=%s from=%d to=%d", held.queue, held.next_offset, reply.next_begin_offset
            )
            await trio.sleep(self._options.failure_delay_s)
            self._assignment().reset({held.queue: reply.next_begin_offset})
        else:
            held.next_offset = reply.next_begin_offset
            if not held.messages.count:
                self._offsets.raise_to(held.queue, reply.next_begin_offset)

    def _take_in(self, held: HeldQueue, body: bytes, reply: PullMessageReply) -> None:
        messages = list(decode_records(body, held.queue.broker_name))
        held.next_offset = reply.next_begin_offset
        wanted = self._subscriptions.get(held.queue.topic)
        keep = keeps(wanted) if wanted is not None else None
        if keep is not None:
            messages = [message for message in messages if keep(message)]
        if not messages:
            if not held.messages.count:
                self._offsets.raise_to(held.queue, reply.next_begin_offset)
            return
        for message in messages:
            message.held = held
        self._arrived(held, held.messages.put(messages))
