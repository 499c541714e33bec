"""Ordered consumption that is cancelled in the middle leaves the queue as it was."""

import trio

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import RemoteOffsets
from netstack.client.consume.orderly import OrderlyFlow
from netstack.client.consume.send_back import SendBack
from netstack.client.handlers import for_batch
from netstack.client.instance import Instance
from netstack.client.messages import ReceivedMessage
from netstack.client.statistics import ConsumeCounts
from tests.netstack.client.consume.test_held import QUEUE, message


class NeverSent(SendBack):
    """A broker that does not answer."""

    def __init__(self) -> None:
        self.asked = trio.Event()

    async def send_to_retry(self, message: ReceivedMessage, limit: int, delay_level: int) -> bool:
        self.asked.set()
        await trio.sleep_forever()
        raise AssertionError


async def test_cancelled_while_a_failed_message_becomes_a_dead_letter_it_is_the_next_one_again() -> None:
    instance, options, send_back = Instance("127.0.0.1:1"), ConsumerOptions(orderly=True, max_reconsume=0), NeverSent()
    offsets = RemoteOffsets(instance, "g")
    held = HeldQueue(QUEUE, 0)
    held.lock.taken_at = trio.current_time()
    counts = ConsumeCounts(trio.current_time)
    flow = OrderlyFlow("g", offsets, options, send_back, held={QUEUE: held}, counts=counts)
    arrived = [message(0), message(1)]
    for each in arrived:
        each.reconsume_times, each.topic, each.held = 0, QUEUE.topic, held
        each._properties = {}
        each._body, each.sys_flag, each.log_offset, each.store_host = None, 0, 0, bytes(8)
        each.broker_name, each.queue_id = QUEUE.broker_name, QUEUE.queue_id
    held.messages.put(arrived)
    seen: list[int] = []
    failing = True

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if failing:
            raise ValueError

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flow.run, for_batch(handle), 1, trio.CapacityLimiter(1))
        await send_back.asked.wait()
        nursery.cancel_scope.cancel()
    assert (list(held.messages.taken), held.messages.lowest, held.busy) == ([], 0, False)
    failing = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flow.run, for_batch(handle), 1, trio.CapacityLimiter(1))
        await held.wait_until(lambda: not held.messages.count)
        nursery.cancel_scope.cancel()
    assert seen == [0, 0, 1]
