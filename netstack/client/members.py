"""What an instance asks of the producers and consumers that share it."""

from collections.abc import Collection, Mapping
from typing import Protocol

from netstack.client.messages import ReceivedMessage
from netstack.wire.bodies import ConsumeDirectlyResult, ConsumerData, ConsumerRunningInfo
from netstack.wire.headers import CheckTransactionHeader
from netstack.wire.json_body import MessageQueue


class ProducerMember(Protocol):
    """A producer group of this client."""

    @property
    def group(self) -> str: ...

    def check_transaction(self, address: str, header: CheckTransactionHeader, message: ReceivedMessage) -> None:
        """A broker asks what became of a half message; answered later by END_TRANSACTION."""


class ConsumerMember(Protocol):
    """A consumer group of this client."""

    @property
    def group(self) -> str: ...

    @property
    def topics(self) -> Collection[str]:
        """Topics whose routes are to be kept fresh."""

    def heartbeat(self) -> ConsumerData: ...

    def wake(self) -> None:
        """The members of the group or a route have changed: rebalance now."""

    def reset(self, topic: str, positions: Mapping[MessageQueue, int]) -> None:
        """Start the listed queues again from these offsets."""

    def positions(self, topic: str) -> dict[MessageQueue, int]: ...

    def running_info(self, *, with_tasks: bool) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeDirectlyResult: ...
