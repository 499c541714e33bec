"""Reads queues without being a consumer: no heartbeat, no group, no stored offset."""

from netstack.client.consume.offsets import max_offset, min_offset, offset_at
from netstack.client.consume.pulling import Pulled, pull_once
from netstack.client.consume.subscriptions import Sql, subscription
from netstack.client.instance import Instance
from netstack.client.messages import MessageQueue

TOOLS_GROUP = "TOOLS_CONSUMER"  # every broker has it from its first start
PATIENCE_S = 11.0  # beyond the time that a broker may hold a pull


class QueueReader:
    """Asks for messages and offsets of any queue over an open instance, as a group that it does not join."""

    def __init__(self, instance: Instance, group: str = TOOLS_GROUP) -> None:
        self.instance, self.group = instance, group

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic as the NameServer knows them now. Raises NoRoute."""
        return (await self.instance.refresh(topic)).subscribe

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        max_count: int = 32,
        expression: str | Sql = "*",
        hold_s: float = 0.0,
    ) -> Pulled:
        """Ask once for messages of any queue from an offset on."""
        await self.instance.route(queue.topic)
        wanted = subscription(queue.topic, expression, 0)
        return await pull_once(
            *(self.instance, self.group, queue, queue_offset, wanted),
            max_count=max_count,
            hold_s=hold_s,
            timeout_s=hold_s + PATIENCE_S,
        )

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the message stored nearest to this time, as brokers search for it."""
        await self.instance.route(queue.topic)
        return await offset_at(self.instance, queue, time_ms)

    async def ends(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the lowest offset there is and the one the next message will get."""
        await self.instance.route(queue.topic)
        return max(0, await min_offset(self.instance, queue)), await max_offset(self.instance, queue)
