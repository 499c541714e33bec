"""From a handler on messages to a method on bytes: reading, who calls, and the status of what went wrong."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from appliance.broker.intake import refusal
from appliance.grpc.clients import ClientSession, ClientSessions
from appliance.grpc.outcome import Rejection, status_of
from appliance.grpc.refusals import Refusals
from appliance.grpc.send_shape import check_send, check_small
from netstack.errors import Refused
from netstack.grpc.calls import Answer, AnswerTask, Call, Deferred, Unary
from netstack.grpc.status import CallFailed, GrpcStatus
from storage_driver.errors import Busy, Full, LogFailed, MessageIllegal

NOT_STORED = (Full, LogFailed, MessageIllegal, Busy)
REFUSALS = (Rejection, Refused, *NOT_STORED)


class Later(NamedTuple):
    """A response that has to be waited for."""

    run: Callable[[], Awaitable[Any]]


def status_told(exc: Exception) -> Any:
    """Return the status for one of REFUSALS."""
    wire_free = refusal(exc) if isinstance(exc, NOT_STORED) else exc
    assert isinstance(wire_free, Rejection | Refused)
    return status_of(wire_free)


Handle = Callable[[ClientSession, Call, Any], Any]
"""(session, call, request) → response, bytes, Deferred or Later. Raises Rejection, Refused, what the store raises."""


def decoded(kind: Any, raw: bytes) -> Any:
    """Return a message of a kind. Raises CallFailed."""
    try:
        return kind.FromString(raw)
    except DecodeError as exc:
        raise CallFailed(GrpcStatus.INVALID_ARGUMENT, f"not a {kind.DESCRIPTOR.name}: {exc}") from exc


def unary(request: Any, response: Any, handle: Handle, sessions: ClientSessions, *, refusals: Refusals) -> Unary:
    """Return the method for a handler: what it refuses is answered in the response's status, and noted."""
    name = request.DESCRIPTOR.name.removesuffix("Request")

    def refused(call: Call, exc: Exception) -> bytes:
        status = status_told(exc)
        refusals.note(name, call, status)
        return bytes(response(status=status).SerializeToString())

    check = check_send if request.DESCRIPTOR.name == "SendMessageRequest" else check_small

    def run(call: Call, raw: bytes) -> Answer:
        check(raw)
        asked = decoded(request, raw)
        try:
            found = handle(sessions.of(call), call, asked)
        except REFUSALS as exc:
            return refused(call, exc)
        if isinstance(found, Deferred | bytes):
            return found
        if isinstance(found, Later):
            return AnswerTask(lambda: waited(call, found))
        return bytes(found.SerializeToString())

    async def waited(call: Call, later: Later) -> bytes:
        try:
            made = await later.run()
        except REFUSALS as exc:
            return refused(call, exc)
        return bytes(made.SerializeToString())

    return Unary(run)
