"""Attempts of a send: which queue, which broker next, when to give up. Source: RocketMQ 4.9.8 DefaultMQProducerImpl."""

import random
from collections.abc import Callable, Sequence

import trio

from netstack.client.errors import (
    BrokerRefused,
    BrokerUnknown,
    ClientError,
    NoRoute,
    SendFailed,
    TimedOut,
    Unreachable,
)
from netstack.client.faults import FaultTable, next_queue
from netstack.client.instance import Instance
from netstack.client.messages import Message, SendResult
from netstack.client.routes import TopicRoute, from_template, publish_address
from netstack.client.send_request import (
    RETRIED_ELSEWHERE,
    EncodedRequest,
    EndsOnFailure,
    ProducerOptions,
    outgoing,
    outgoing_batch,
    send_result,
)
from netstack.wire.json_body import MessageQueue

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]
Sent = Callable[[EncodedRequest, SendResult | None, MessageQueue, float], None]
Attempts = list[tuple[str, ClientError]]


def worth_retrying(error: ClientError) -> bool:
    """True where another broker may help."""
    if isinstance(error, BrokerRefused):
        return error.code in RETRIED_ELSEWHERE
    return isinstance(error, (Unreachable, TimedOut, BrokerUnknown))


class Sender:
    """Sends for one group over one instance. `sent` is called for every finished attempt, for the trace."""

    def __init__(self, instance: Instance, group: str, options: ProducerOptions, sent: Sent | None = None) -> None:
        self.instance, self.group, self.options, self.sent = instance, group, options, sent
        self.faults = FaultTable()
        self._positions: dict[str, int] = {}
        self._templates: dict[str, TopicRoute] = {}
        self._reached: dict[str, str] = {}  # broker → address of those that took a message

    def make(self, message: Message) -> EncodedRequest:
        """Return the message ready to leave, with an id of its own. Raises MessageRejected."""
        return self._made((message,), self._single)

    def make_batch(self, messages: Sequence[Message]) -> EncodedRequest:
        return self._made(messages, self._batch)

    def _made(self, messages: Sequence[Message], make: Callable[[Sequence[Message]], EncodedRequest]) -> EncodedRequest:
        telemetry = self.options.telemetry
        if telemetry is None or not messages:
            return make(messages)
        messages, ended = telemetry.publishing(messages, self.group, self.instance.client_id)
        with EndsOnFailure(ended):
            out = make(messages)
        out.ended = ended
        return out

    def _single(self, messages: Sequence[Message]) -> EncodedRequest:
        return outgoing(messages[0], self.instance.ids.make(self.instance.now_ms()), self.options)

    def _batch(self, messages: Sequence[Message]) -> EncodedRequest:
        now_ms = self.instance.now_ms()
        return outgoing_batch(messages, [self.instance.ids.make(now_ms) for _ in messages], self.options)

    def known_route(self, topic: str) -> TopicRoute | None:
        """Return the cached route if messages can be sent by it."""
        route = self.instance.routes.get(topic) or self._templates.get(topic)
        return route if route is not None and route.publish else None

    async def route(self, topic: str) -> TopicRoute:
        """Return where a topic can be written, taking the template's route for an unknown one. Raises NoRoute."""
        known = self.known_route(topic)
        if known is not None:
            return known
        try:
            route = await self.instance.refresh(topic)
        except NoRoute as unknown:
            route = await self._template_route(topic, unknown)
        if not route.publish:
            reason = "none of its queues can be written: read-only, or their master is down"
            raise NoRoute(topic, reason, "start the master; in a group of boxes see `rocketbox group status`")
        return route

    async def _template_route(self, topic: str, unknown: NoRoute) -> TopicRoute:
        try:
            raw = await self.instance.fetch_route_data(self.options.template)
        except NoRoute:
            raise unknown from None
        route = from_template(topic, raw, self.options.new_topic_queues)
        self._templates[topic] = route
        return route

    def pick(self, route: TopicRoute, last_broker: str | None = None) -> MessageQueue:
        """Return the next queue in turn, avoiding the last attempt's broker and, if asked for, slow ones."""
        position = self._positions.get(route.topic)
        position = random.getrandbits(20) if position is None else position + 1
        self._positions[route.topic] = position
        if self.options.avoid_slow_brokers:
            return self.faults.pick(route.publish, position, trio.current_time() * 1000)
        return next_queue(route.publish, position, last_broker)

    def address(self, broker_name: str, route: TopicRoute | None = None) -> str:
        """Return where to send for a broker. Raises BrokerUnknown."""
        found = publish_address(route.brokers, broker_name) if route is not None else None
        found = found or self.instance.addresses_of(broker_name).get(0)
        found = found or self._reached.get(broker_name)  # a new topic has no route for a while
        if found is None:
            raise BrokerUnknown(broker_name)
        return found

    async def attempt(self, out: EncodedRequest, queue: MessageQueue, until: float) -> SendResult:
        """Send once. Raises ClientError; notes how long it took."""
        began = trio.current_time()
        result: SendResult | None = None
        failed = True
        address = self.address(queue.broker_name, self.known_route(out.topic))
        try:
            ext = out.header(self.group, queue, self.options, self.instance.now_ms())
            answer = await self.instance.ask(address, out.code, ext, out.body, timeout_s=max(0.0, until - began))
            result = send_result(answer, out, queue, address)
            failed = False
            self._reached[queue.broker_name] = address
            self._templates.pop(out.topic, None)
            return result
        except (Unreachable, TimedOut):
            self.instance.suspect_routes()
            raise
        finally:
            took_s = trio.current_time() - began
            if self.options.avoid_slow_brokers:
                self.faults.note(queue.broker_name, took_s * 1000, trio.current_time() * 1000, failed=failed)
            if self.sent is not None:
                self.sent(out, result, queue, took_s)

    async def send(
        self, out: EncodedRequest, timeout_s: float | None = None, *, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send, with further attempts on another broker; to a given queue, once. Raises ClientError."""
        began = trio.current_time()
        until = began + (self.options.timeout_s if timeout_s is None else timeout_s)
        with EndsOnFailure(out.ended):
            result = await self.go_on(out, [], (began, until), queue)
        if out.ended is not None:
            out.ended(result, None)
        return result

    async def go_on(
        self, out: EncodedRequest, failures: Attempts, span: tuple[float, float], fixed: MessageQueue | None = None
    ) -> SendResult:
        """Make the attempts that are left after earlier failures, between two moments of the trio clock.

        Where the only broker is out of reach they are spread over the time: a restart takes a second or two.
        """
        began, until = span
        not_stored: SendResult | None = None
        allowed = 1 if fixed else 1 + self.options.retries
        while len(failures) < allowed and trio.current_time() < until:
            with trio.move_on_at(until):
                route = await self.route(out.topic)
                if failures and _is_alone(failures[-1], route):  # it starts again, perhaps
                    await trio.sleep((until - trio.current_time()) / (allowed - len(failures) + 1))
                queue = fixed or self.pick(route, failures[-1][0] if failures else None)
                try:
                    result = await self.attempt(out, queue, until)
                except ClientError as error:
                    failures.append((queue.broker_name, error))
                    if not worth_retrying(error):
                        raise
                    continue
                if result.status == "SEND_OK" or not self.options.retry_when_not_stored:
                    return result
                not_stored = result
                failures.append((queue.broker_name, ClientError(f"stored with status {result.status}")))
        if not_stored is not None:
            return not_stored
        if not failures:
            raise TimedOut(f"sending to {out.topic}", until - began)
        raise _verdict(out, failures, trio.current_time() - began)


def _is_alone(failure: tuple[str, ClientError], route: TopicRoute) -> bool:
    """Return whether a broker was not reached and no other one has the topic."""
    broker, error = failure
    return isinstance(error, Unreachable) and all(queue.broker_name == broker for queue in route.publish)


def _verdict(out: EncodedRequest, failures: Attempts, elapsed_s: float) -> ClientError:
    """Return the error of a send all of whose attempts failed: a single attempt's own."""
    last = failures[-1][1]
    if len(failures) == 1:
        return last
    failed = SendFailed(out.topic, failures, elapsed_s)
    failed.__cause__ = last
    return failed
