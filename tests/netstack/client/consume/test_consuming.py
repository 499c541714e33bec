"""Messages handed out: what becomes of one whose way back to the broker is cancelled."""

import trio

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.consuming import MessageBuffer
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import RemoteOffsets
from netstack.client.consume.send_back import SendBack
from netstack.client.instance import Instance
from netstack.client.messages import ReceivedMessage
from netstack.client.statistics import ConsumeCounts
from tests.netstack.client.consume.test_held import QUEUE, message


class NeverTaken(SendBack):
    """A broker that does not answer."""

    def __init__(self) -> None:
        """Nobody is asked."""

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        await trio.sleep_forever()
        raise AssertionError


async def test_a_message_whose_retry_was_cancelled_is_handed_out_again_once() -> None:
    instance, options = Instance("127.0.0.1:1"), ConsumerOptions()
    offsets = RemoteOffsets(instance, "g")
    stock = MessageBuffer(
        "g", offsets, options, NeverTaken(), now_ms=lambda: 1, counts=ConsumeCounts(trio.current_time)
    )
    held = HeldQueue(QUEUE, 0)
    made = message(0)
    made.topic, made.held = QUEUE.topic, held
    stock.arrived(held, held.messages.put([made]))
    assert await stock.take(5) == [made]
    with trio.CancelScope() as scope:
        scope.cancel()
        await stock.retry(made)
    assert len(stock) == 1
    assert await stock.take(5) == [made]
    stock.ack(made)
    assert (held.messages.count, offsets.get(QUEUE)) == (0, 1)
