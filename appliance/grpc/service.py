"""The methods of apache.rocketmq.v2.MessagingService, composed of the handlers. What is not here is UNIMPLEMENTED."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from appliance.broker.filter.kept_filters import KeptFilters
from appliance.broker.tables.topics import READ
from appliance.configuration.settings import Config
from appliance.grpc.acks import Acks
from appliance.grpc.clients import ClientSessions
from appliance.grpc.consumers import ConsumerRules, Consumers
from appliance.grpc.methods import Handle, unary
from appliance.grpc.parts import GrpcParts
from appliance.grpc.receives import ReceiveRules, Receives
from appliance.grpc.refusals import Refusals
from appliance.grpc.renewals import keep_renewing
from appliance.grpc.routes import RouteRules, Routes
from appliance.grpc.sends import GrpcSends, SendRules
from appliance.grpc.telemetry import ClientStreams, TelemetryRules
from appliance.grpc.transactions import SecondWords
from netstack.grpc.calls import Service, Streaming, Unary
from netstack.grpc.v2 import service_pb2

PATH = "/apache.rocketmq.v2.MessagingService/"
MIB = 1 << 20


class Made(NamedTuple):
    """The service, and the loop that renews messages for its clients."""

    methods: Service
    renewing: Callable[[], Awaitable[None]]


def make_service(config: Config, served: GrpcParts) -> Made:
    """Return path → method, and what runs beside them."""
    tables, parts, engine, broker = served.tables, served.parts, served.pop.engine, config.box.name
    sessions = ClientSessions(
        served.gate, served.keys, lambda handle, time_ms: engine().renew(handle, time_ms), most=config.limits.clients
    )
    most_bytes, refusals = config.limits.message_mib * MIB, Refusals(served.counts.refusals)
    routes = Routes(_route_rules(config, served), tables.topics, tables.groups)
    sends = GrpcSends(SendRules(most_bytes), parts.publishing)
    later = SecondWords(parts.transactions, parts.recalls, served.store)
    consumers = _consumers(config, served)
    said = TelemetryRules(most_bytes, refusals)
    telemetry = ClientStreams(said, sessions, tables.clients, consumers, now_ms=served.now_ms)
    least = ReceiveRules(broker, config.grpc.min_invisible_ms, config.grpc.min_poll_ms / 1000)
    receives = Receives(least, engine, sessions, consumers, KeptFilters(), refusals=refusals)
    acks = Acks(broker, engine, served.now_ms)
    handlers: dict[str, Handle] = {
        "QueryRoute": routes.query_route,
        "QueryAssignment": routes.query_assignment,
        "SendMessage": sends.send,
        "EndTransaction": later.end,
        "RecallMessage": later.recall,
        "AckMessage": acks.acknowledge,
        "ChangeInvisibleDuration": acks.change,
        "ForwardMessageToDeadLetterQueue": acks.forward,
        "Heartbeat": telemetry.heartbeat,
        "NotifyClientTermination": telemetry.leave,
    }
    methods: dict[bytes, Unary | Streaming] = {
        f"{PATH}{name}".encode(): unary(
            *(getattr(service_pb2, f"{name}Request"), getattr(service_pb2, f"{name}Response"), handle, sessions),
            refusals=refusals,
        )
        for name, handle in handlers.items()
    }
    methods[f"{PATH}Telemetry".encode()] = Streaming(telemetry.handle)
    methods[f"{PATH}ReceiveMessage".encode()] = Streaming(receives.handle)
    return Made(methods, partial(keep_renewing, sessions.renewed))


def _consumers(config: Config, served: GrpcParts) -> Consumers:
    broker, tables = config.broker, served.tables
    rules = ConsumerRules(broker.delay_levels, bool(broker.permission & READ), broker.property_filter)
    return Consumers(rules, tables.topics, tables.groups, tables.clients, tables.compile_pace, now_ms=served.now_ms)


def _route_rules(config: Config, served: GrpcParts) -> RouteRules:
    rules = RouteRules(config.box.name, config.broker.permission, served.leader_host)
    return rules if served.group is None else rules._replace(each_serves=served.group.each_serves)
