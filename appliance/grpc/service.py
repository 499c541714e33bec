"""The methods of apache.rocketmq.v2.MessagingService, composed of the handlers. What is not here is UNIMPLEMENTED."""

from appliance.configuration.settings import Config
from appliance.grpc.clients import ClientSessions
from appliance.grpc.methods import Handle, unary
from appliance.grpc.parts import GrpcParts
from appliance.grpc.routes import RouteRules, Routes
from appliance.grpc.sends import GrpcSends, SendRules
from appliance.grpc.telemetry import ClientStreams, TelemetryRules
from appliance.grpc.transactions import SecondWords
from netstack.grpc.calls import Service, Streaming, Unary
from netstack.grpc.v2 import service_pb2

PATH = "/apache.rocketmq.v2.MessagingService/"
MIB = 1 << 20


def make_service(config: Config, served: GrpcParts) -> Service:
    """Return path → method."""
    tables, parts, sessions = served.tables, served.parts, ClientSessions(served.gate, served.keys)
    most_bytes = config.limits.message_mib * MIB
    routes = Routes(RouteRules(config.box.name, config.broker.permission), tables.topics, tables.groups)
    sends = GrpcSends(SendRules(most_bytes), parts.publishing, served.store)
    later = SecondWords(parts.transactions, parts.recalls, served.store)
    telemetry = ClientStreams(TelemetryRules(most_bytes), sessions, tables.clients, now_ms=served.now_ms)
    handlers: dict[str, Handle] = {
        "QueryRoute": routes.query_route,
        "QueryAssignment": routes.query_assignment,
        "SendMessage": sends.send,
        "EndTransaction": later.end,
        "RecallMessage": later.recall,
        "Heartbeat": telemetry.heartbeat,
        "NotifyClientTermination": telemetry.leave,
    }
    methods: dict[bytes, Unary | Streaming] = {
        f"{PATH}{name}".encode(): unary(
            getattr(service_pb2, f"{name}Request"), getattr(service_pb2, f"{name}Response"), handle, sessions
        )
        for name, handle in handlers.items()
    }
    methods[f"{PATH}Telemetry".encode()] = Streaming(telemetry.handle)
    return methods
