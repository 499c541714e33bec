"""The pull task outlives whatever its broker does."""

import trio

from netstack.client.consume.assignment import Assignment
from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import RemoteOffsets
from netstack.client.consume.pulling import Puller
from netstack.client.consume.subscriptions import Subscriptions
from netstack.client.instance import Instance
from tests.netstack.client.consume.test_held import QUEUE


async def test_a_queue_locked_anew_whose_broker_is_gone_is_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    instance, options = Instance("127.0.0.1:1"), ConsumerOptions(orderly=True)
    offsets, subscriptions = RemoteOffsets(instance, "g"), Subscriptions(lambda: 1)
    assignment = Assignment(instance, "g", subscriptions, offsets, options, begin=lambda held: None)
    puller = Puller(
        *(instance, "g", subscriptions, offsets, options),
        assignment=lambda: assignment,
        arrived=lambda held, messages: None,
    )
    held = HeldQueue(QUEUE, 0)
    held.lock.taken_at, held.lock.fresh = trio.current_time(), True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(puller.run, held)
        await trio.sleep(3.5 * options.failure_delay_s)
        assert held.pulled_at == 3 * options.failure_delay_s + (held.lock.taken_at or 0)
        assert held.lock.fresh
        held.drop()
