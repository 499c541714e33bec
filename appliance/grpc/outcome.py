"""How an answer says what became of a request: codes of apache.rocketmq.v2, and what the broker's own codes become.

Source of the mapping: RocketMQ 5.3 GrpcProxyException, ResponseBuilder; 14 to 17 as the proto file words them.
"""

from typing import Any

from appliance.errors import DueTooLate
from netstack.errors import Refused
from netstack.grpc.v2.definition_pb2 import Code, Status
from netstack.wire.codes import ResponseCode

OK = int(Code.OK)
MULTIPLE = Status(code=Code.MULTIPLE_RESULTS, message="MULTIPLE_RESULTS")
_OF_BROKER = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.SERVICE_NOT_AVAILABLE: Code.INTERNAL_SERVER_ERROR,
    ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.ILLEGAL_OPERATION: Code.MESSAGE_NOT_FOUND,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
}


class Rejection(Exception):
    """A request that is understood and not granted: it is answered with this code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{Code.Name(code)}: {text}")
        self.code, self.text = code, text

    @property
    def status(self) -> Status:
        return Status(code=self.code, message=self.text)


def ok() -> Status:
    """Return the status of what succeeded."""
    return Status(code=Code.OK, message="OK")


def fill_ok(status: Any) -> None:
    """Make a status that of what succeeded, in its place."""
    status.code, status.message = OK, "OK"


def fill_overall(response: Any) -> None:
    """Say what became of all entries of a response together."""
    entries = response.entries
    overall = entries[0].status if entries else MULTIPLE
    if len(entries) > 1 and any(entry.status.code != overall.code for entry in entries):
        overall = MULTIPLE
    if overall.code == OK:
        fill_ok(response.status)
    else:
        response.status.CopyFrom(overall)


def status_of(exc: Rejection | Refused) -> Status:
    """Return what a client is told of a refusal."""
    if isinstance(exc, Rejection):
        return exc.status
    if isinstance(exc, DueTooLate):  # remoting has one code for it and other faults
        return Status(code=Code.ILLEGAL_DELIVERY_TIME, message=exc.remark)
    return Status(code=_OF_BROKER.get(exc.code, Code.INTERNAL_SERVER_ERROR), message=exc.remark)
