"""Where a new group begins in a queue whose first message the broker no longer counts as being in memory."""

import os
from pathlib import Path

import pytest
import trio

from netstack.client import ConsumerOptions, Instance, Message, Producer, PullConsumer, PushConsumer, StartFrom
from tests.appliance.box import running_box
from tests.waiting import until

CASES = {
    StartFrom.FIRST: [b"old", b"between", b"late"],
    StartFrom.LAST: [b"late"],
    StartFrom.TIMESTAMP: [b"between", b"late"],
}


@pytest.mark.slow
async def test_a_new_group_begins_where_it_was_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, begun = os.sysconf, trio.Semaphore(0)
    monkeypatch.setattr(os, "sysconf", lambda name: 0 if name == "SC_PHYS_PAGES" else real(name))  # none is in memory
    got: dict[StartFrom, list[bytes]] = {start: [] for start in CASES}

    async def consume(instance: Instance, start: StartFrom, start_ms: int) -> None:
        options = ConsumerOptions(start_from=start, start_ms=start_ms)
        async with PushConsumer(start.name, instance=instance, options=options, topics={"T": "*"}) as consumer:
            await until(lambda: len(consumer.assigned) == 5)  # four queues and that of retries
            begun.release()
            while got[start][-1:] != [b"late"]:
                messages = await consumer.take(32)
                got[start] += [message.body for message in messages if message.body != b"makes the topic"]

    async with running_box(tmp_path) as box, Producer("p", f"127.0.0.1:{box.namesrv_port}") as producer:
        await producer.send(Message("T", b"makes the topic"))
        queue = (await producer.queues("T"))[0]
        await producer.send_to(queue, Message("T", b"old"))
        await trio.sleep(0.05)
        sent = await producer.send_to(queue, Message("T", b"between"))
        async with PullConsumer("reader", instance=producer.instance) as reader:
            (between,) = (await reader.pull(queue, sent.queue_offset)).messages
        between_ms = between.stored_ms - 1  # a broker answers with the message nearest to a time
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for start in CASES:
                    nursery.start_soon(consume, producer.instance, start, between_ms)
                for _ in CASES:
                    await begun.acquire()
                await producer.send_to(queue, Message("T", b"late"))
    assert got == CASES
