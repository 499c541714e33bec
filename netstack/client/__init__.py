"""The client library: producers and consumers for trio programs, against any RocketMQ 4.9 or 5.x remoting cluster."""

from netstack.client.consume.consumer_options import ConsumerOptions, StartFrom
from netstack.client.consume.pull_consumer import PullConsumer
from netstack.client.consume.pulling import Pulled
from netstack.client.consume.push_consumer import PushConsumer
from netstack.client.consume.rebalance import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    NearMachineRoom,
)
from netstack.client.consume.subscriptions import Sql
from netstack.client.errors import (
    BadAnswer,
    BodyUnreadable,
    BrokerRefused,
    ClientError,
    MessageRejected,
    NoNameServer,
    NoReply,
    NoRoute,
    NotAssigned,
    ReplyImpossible,
    SendFailed,
    StrategyFailed,
    TimedOut,
    Unreachable,
    UsageError,
)
from netstack.client.handlers import Ordered, Retry
from netstack.client.instance import Credentials, Instance
from netstack.client.messages import Message, MessageQueue, ReceivedMessage, SendResult
from netstack.client.produce.pipeline import Pending
from netstack.client.produce.producer import Producer
from netstack.client.produce.requesting import make_reply
from netstack.client.produce.trace import TRACE_TOPIC
from netstack.client.produce.transactions import Verdict
from netstack.client.send_request import ProducerOptions

__all__ = [
    "TRACE_TOPIC",
    "Averagely",
    "AveragelyByCircle",
    "BadAnswer",
    "BodyUnreadable",
    "BrokerRefused",
    "ByConfig",
    "ByMachineRoom",
    "ClientError",
    "ConsistentHash",
    "ConsumerOptions",
    "Credentials",
    "Instance",
    "Message",
    "MessageQueue",
    "MessageRejected",
    "NearMachineRoom",
    "NoNameServer",
    "NoReply",
    "NoRoute",
    "NotAssigned",
    "Ordered",
    "Pending",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "Pulled",
    "PushConsumer",
    "ReceivedMessage",
    "ReplyImpossible",
    "Retry",
    "SendFailed",
    "SendResult",
    "Sql",
    "StartFrom",
    "StrategyFailed",
    "TimedOut",
    "Unreachable",
    "UsageError",
    "Verdict",
    "make_reply",
]
