"""Telemetry, Heartbeat, NotifyClientTermination: what a client says of itself, and what the box has to say to it.

A client's stream carries its settings in, the settings in force out, and later what the broker asks of it. Source:
RocketMQ 5.3 ClientActivity, GrpcClientSettingsManager.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import trio

from appliance.broker.rights import Perm, of_topic
from appliance.broker.tables.clients import ClientTable
from appliance.grpc.client_stream import ClientStream
from appliance.grpc.clients import ClientSession, ClientSessions
from appliance.grpc.consumers import Consumers
from appliance.grpc.kept_settings import KeptSettings
from appliance.grpc.methods import decoded
from appliance.grpc.outcome import Rejection, ok, status_of
from appliance.grpc.refusals import Refusals
from appliance.grpc.resources import topic_of
from appliance.grpc.send_shape import check_command
from netstack.errors import Refused
from netstack.grpc.calls import Call
from netstack.grpc.status import CallFailed, GrpcStatus
from netstack.grpc.v2.definition_pb2 import ClientType, Code, Settings
from netstack.grpc.v2.service_pb2 import HeartbeatResponse, NotifyClientTerminationResponse, TelemetryCommand

MOST_PROPERTIES, MOST_PROPERTY_BYTES = 32, 4096
FEW_BYTES, MOST_UNREAD_BYTES = 4096, 8 << 20  # of answers to be read: one that does not count, and all others
UNREAD_S = 30.0
ATTEMPTS, FIRST_S, LONGEST_S, TIMES = 3, 0.01, 1.0, 2.0  # of a producer that sends again
SERVED = {
    "publishing": (ClientType.PRODUCER, ClientType.CLIENT_TYPE_UNSPECIFIED),
    "subscription": (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER),
}
REQUEST_FAILURES = range(Code.BAD_REQUEST, Code.INTERNAL_ERROR)


class TelemetryRules(NamedTuple):
    """What settings need of the configuration, and where refusals are noted."""

    message_bytes: int
    refusals: Refusals


class ClientStreams:
    """Handles the streams of clients, their heartbeats and their leave."""

    def __init__(
        self,
        rules: TelemetryRules,
        sessions: ClientSessions,
        clients: ClientTable,
        consumers: Consumers,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._rules, self._sessions, self._clients, self._now_ms = rules, sessions, clients, now_ms
        self._consumers, self._unread = consumers, 0

    async def handle(self, call: Call) -> None:
        """Serve one stream until the client ends it. Raises CallFailed.

        The client stays what it said it is until it leaves, is silent for long or its connection ends: a stream that
        breaks alone is opened again, and receives go on meanwhile. Source: RocketMQ 5.3 GrpcClientSettingsManager.
        """
        stream = ClientStream(call, self._now_ms())
        try:
            while await self._take(call, stream):
                pass
        finally:
            stream.end()
            session = stream.session
            if session is not None and session.stream is stream:
                session.stream = None

    async def _take(self, call: Call, stream: ClientStream) -> bool:
        """Take the client's next command, False where there is none. It is not kept while the next is waited for.

        A refusal is told before the stream ends with it: Node's client waits for an answer to its settings for ever.
        Raises CallFailed.
        """
        try:
            answer = self._answer(call, stream, await call.receive())
        except (Rejection, Refused) as exc:
            self._rules.refusals.note_settings(call, status_of(exc))
            await self._send(call, TelemetryCommand(status=status_of(exc)).SerializeToString())
            raise _failed(exc) from exc
        if answer:
            await self._send(call, answer)
        return answer is not None

    async def _send(self, call: Call, answer: bytes) -> None:
        """Send settings; large ones of many streams that are not read would fill the memory. Raises CallFailed."""
        size = len(answer) if len(answer) > FEW_BYTES else 0
        if size and self._unread + size > MOST_UNREAD_BYTES:
            text = f"settings of {size} bytes, and clients are still to read {self._unread}: come again later"
            raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, text)
        self._unread += size
        try:
            with trio.move_on_after(UNREAD_S) as reading:
                await call.send(answer)
        finally:
            self._unread -= size
        if reading.cancelled_caught:
            raise CallFailed(GrpcStatus.CANCELLED, f"the client did not read its settings for {UNREAD_S:g} s")

    def _answer(self, call: Call, stream: ClientStream, raw: bytes | None) -> bytes | None:
        """Return the answer to a command, None where there is no command. Raises Rejection, Refused, CallFailed."""
        if raw is None:
            return None
        check_command(raw)
        command = decoded(TelemetryCommand, raw)
        session = stream.session = self._sessions.of(call)
        session.heard()  # the call may have begun hours ago
        if command.WhichOneof("command") != "settings":
            stream.reported(command)
            return b""
        in_force = self._settle(session, command.settings)
        session.stream, stream.fifo = stream, in_force.subscription.fifo
        return bytes(TelemetryCommand(status=ok(), settings=in_force).SerializeToString())

    def _settle(self, session: ClientSession, given: Settings) -> Settings:
        """Take up a client's settings and return those in force. Raises Rejection, Refused."""
        known = session.settings is not None
        try:
            check_settings(given)
            self._sessions.settle(session, KeptSettings(given))
            self._join(session, given)
        except (Rejection, Refused):
            if not known:
                session.left()
            raise
        return self._in_force(given)

    def _join(self, session: ClientSession, settings: Settings) -> None:
        """Make the client known to the broker. Raises Rejection, Refused."""
        if settings.HasField("subscription"):
            self._consumers.join(session, settings)
        for resource in settings.publishing.topics:
            topic = topic_of(resource)
            session.require(of_topic(topic, Perm.PUB))
            member = session.member(self._now_ms())
            self._clients.producer_joined(session, topic, member)

    def _in_force(self, given: Settings) -> Settings:
        made = Settings()
        made.CopyFrom(given)
        made.metric.on = False
        if made.HasField("subscription"):
            self._consumers.complete(made)
            return made
        policy = made.backoff_policy
        policy.max_attempts = ATTEMPTS
        policy.exponential_backoff.initial.FromMilliseconds(int(FIRST_S * 1000))
        policy.exponential_backoff.max.FromMilliseconds(int(LONGEST_S * 1000))
        policy.exponential_backoff.multiplier = TIMES
        made.publishing.validate_message_type = True
        made.publishing.max_body_size = self._rules.message_bytes
        return made

    def heartbeat(self, session: ClientSession, call: Call, request: Any) -> Any:
        """The client lives. Raises Rejection when its settings are not known: it sends them again then."""
        self._join(session, _settings_of(session))
        return HeartbeatResponse(status=ok())

    def leave(self, session: ClientSession, call: Call, request: Any) -> Any:
        """The client ends; Rust ends its stream first."""
        session.left()
        return NotifyClientTerminationResponse(status=ok())


def check_settings(given: Settings) -> None:
    """Raise Rejection unless settings are those of a client that is served here."""
    properties = given.client_properties
    if len(properties) > MOST_PROPERTIES or sum(map(len, [*properties, *properties.values()])) > MOST_PROPERTY_BYTES:
        text = f"more than {MOST_PROPERTIES} client properties or {MOST_PROPERTY_BYTES} characters of them"
        raise Rejection(Code.INVALID_CLIENT_PROPERTIES, text)
    if given.WhichOneof("pub_sub") is None:
        raise Rejection(Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
    if given.client_type not in SERVED[given.WhichOneof("pub_sub")]:
        kind = ClientType.Name(given.client_type)
        text = f"a {kind} with settings for {given.WhichOneof('pub_sub')} is not supported: docs/limits.md"
        raise Rejection(Code.UNRECOGNIZED_CLIENT_TYPE, text)


def _settings_of(session: ClientSession) -> Settings:
    if session.settings is None:
        raise Rejection(Code.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
    return session.settings.read()


def _failed(exc: Rejection | Refused) -> CallFailed:
    """Return how a stream ends on a refusal. Source: RocketMQ 5.3 ClientActivity.processTelemetryException."""
    status = status_of(exc)
    kind = GrpcStatus.INVALID_ARGUMENT if status.code in REQUEST_FAILURES else GrpcStatus.INTERNAL
    return CallFailed(kind, f"process client telemetryCommand failed. {status.message}")
