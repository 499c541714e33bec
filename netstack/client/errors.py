"""Errors between an application and a cluster: each names the server, the code and the next step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from netstack.errors import ProtocolError, Refused
from netstack.wire.codes import ResponseCode

CONNECT_FAILED, TIMED_OUT, BROKER_UNKNOWN, NO_NAME_SERVER, NO_ROUTE, NO_REPLY, REPLY_IMPOSSIBLE, BAD_ANSWER = range(
    10001, 10009
)

NEXT_STEPS: dict[int, str] = {
    ResponseCode.SYSTEM_ERROR: "the server's log may have more",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "is it the right port? NameServers have 9876, brokers 10911",
    ResponseCode.SYSTEM_BUSY: "the broker is overloaded: send slower or later",
    ResponseCode.MESSAGE_ILLEGAL: "make the message smaller or correct what the remark names",
    ResponseCode.SERVICE_NOT_AVAILABLE: "try again later, or cure what the remark names",
    ResponseCode.NO_PERMISSION: "check the topic's permission and the account",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic or let the broker create topics",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "correct the filter expression",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "let a consumer of the group subscribe to the topic first",
    ResponseCode.SUBSCRIPTION_NOT_LATEST: "try again after the next heartbeat, which sends the new subscription",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the consumer group",
    ResponseCode.CONSUMER_NOT_ONLINE: "start a consumer of the group",
}
ANY_NEXT_STEP = "look for the code in the server's log"


class ClientError(Exception):
    """Any failure of this client; `code` is the broker's or one of the client's own from 10001 on."""

    code: int = 0


class NoNameServer(ClientError):
    """No NameServer address is known, or none of them answers."""

    code = NO_NAME_SERVER

    def __init__(self, addresses: Sequence[str], reason: str) -> None:
        known = (
            f"no NameServer answered, asked {', '.join(addresses)}: {reason}; "
            "is this its address (HOST:9876, not the broker's 10911), does it run, does it require TLS?"
        )
        super().__init__(known if addresses else f"{reason}: name a NameServer (HOST:9876), or set NAMESRV_ADDR")
        self.addresses, self.reason = tuple(addresses), reason


class NoRoute(ClientError):
    """The NameServer knows no broker for a topic."""

    code = NO_ROUTE

    def __init__(
        self,
        topic: str,
        reason: str = "the NameServer does not know it",
        step: str = "create the topic, or start a broker that creates it",
    ) -> None:
        super().__init__(f"no route for topic {topic}: {reason}; {step}")
        self.topic = topic


class BrokerUnknown(ClientError):
    """A queue names a broker that has no address in the route."""

    code = BROKER_UNKNOWN

    def __init__(self, broker: str) -> None:
        super().__init__(f"broker {broker} has no address in any known route; it may be down or was renamed")
        self.broker = broker


class Unreachable(ClientError):
    """No connection, or it ended before the answer; whether the request was executed is unknown."""

    code = CONNECT_FAILED

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} is not reachable: {reason}; check the address, the network and the server")
        self.address, self.reason = address, reason


class TimedOut(ClientError):
    """The timeout passed; whether the request was executed is unknown."""

    code = TIMED_OUT

    def __init__(self, what: str, timeout_s: float) -> None:
        super().__init__(f"{what}: no answer within {timeout_s:.3g} s; allow more time or check the broker's load")
        self.timeout_s = timeout_s


class BrokerRefused(ClientError):
    """A broker or NameServer answered with an error code."""

    def __init__(self, server: str, code: int, remark: str | None, what: str = "request") -> None:
        step = NEXT_STEPS.get(code, ANY_NEXT_STEP)
        super().__init__(f"{server} refused the {what}, code {code}: {(remark or 'no remark').strip()}; {step}")
        self.server, self.code, self.remark = server, code, remark


class BadAnswer(ClientError):
    """A server sent an answer that violates the protocol; what it did is unknown."""

    code = BAD_ANSWER

    def __init__(self, server: str, what: str, reason: object) -> None:
        super().__init__(f"{server} answered the {what} with an undecodable reply: {reason}; is it a RocketMQ server?")
        self.server = server


@contextmanager
def reading(server: str, what: str) -> Iterator[None]:
    """A block that reads an answer. Raises BadAnswer where it is not as it should be."""
    try:
        yield
    except (ProtocolError, Refused) as broken:
        raise BadAnswer(server, what, broken) from broken


class MessageRejected(ClientError):
    """An invalid message; nothing was sent."""

    code = ResponseCode.MESSAGE_ILLEGAL


class SendFailed(ClientError):
    """All attempts of a send failed; the last one is the cause (`__cause__`)."""

    def __init__(self, topic: str, attempts: Sequence[tuple[str, ClientError]], elapsed_s: float) -> None:
        brokers = len({broker for broker, _ in attempts})
        tried = f"{len(attempts)} attempts at {brokers} broker{'s' if brokers != 1 else ''} in {elapsed_s:.2f} s"
        super().__init__(f"message for {topic} not sent after {tried}: {'; '.join(_told_once(attempts))}")
        self.topic, self.attempts = topic, tuple(attempts)
        self.code = attempts[-1][1].code if attempts else TIMED_OUT


def _told_once(attempts: Sequence[tuple[str, ClientError]]) -> list[str]:
    """Return one text for each thing that went wrong: the last error of its kind, with who it happened at."""
    kinds: dict[object, list[tuple[str, ClientError]]] = {}
    for broker, error in attempts:
        kinds.setdefault(_kind(error), []).append((broker, error))
    texts = []
    for alike in kinds.values():
        times = f"{len(alike)} times " if len(alike) > 1 else ""
        names = ", ".join(dict.fromkeys(broker for broker, _ in alike))
        texts.append(f"{times}at {names}: {alike[-1][1]}")
    return texts


def _kind(error: ClientError) -> object:
    """Return what errors have in common that tell the same except for server and time."""
    if isinstance(error, BrokerRefused):
        return error.code, error.remark
    if isinstance(error, Unreachable):
        return Unreachable, error.reason
    return TimedOut if isinstance(error, TimedOut) else str(error)


class NoReply(ClientError):
    """The request was sent, its reply did not arrive in time."""

    code = NO_REPLY

    def __init__(self, topic: str, timeout_s: float) -> None:
        super().__init__(f"no reply to the request on {topic} within {timeout_s:.3g} s; check that a responder runs")
        self.topic = topic


class ReplyImpossible(ClientError):
    """A message that is not a request cannot be replied to."""

    code = REPLY_IMPOSSIBLE


class BodyUnreadable(ClientError):
    """A compressed body of a kind this program cannot read, or a damaged one."""


class NotAssigned(ClientError):
    """A queue that this consumer does not hold."""


class StrategyFailed(ClientError):
    """The rebalance strategy a consumer was given raised an error (`__cause__`); its queues stay as they were."""

    def __init__(self, strategy: str, topic: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        super().__init__(f"strategy {strategy} does not assign the queues of {topic}: {reason}; correct it")
        self.strategy, self.topic = strategy, topic


class UsageError(ClientError):
    """The program uses this client in a way that cannot work; the text says what to change."""
