"""`rocketbox tail -f` at a box that has no room for its long polls."""

from pathlib import Path

import pytest
import trio

from appliance.commands.tail import _follow
from netstack.client import Message, Producer, PullConsumer
from tests.appliance.box import running_box
from tests.waiting import until


@pytest.mark.slow
async def test_a_follower_whose_pulls_may_not_wait_asks_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        running_box(tmp_path, "[limits]\nparked_pulls = 1\n") as crowded,
        Producer("p", f"127.0.0.1:{crowded.namesrv_port}") as producer,
    ):
        await producer.send(Message("T", b"makes the topic"))
        ends = dict.fromkeys(await producer.queues("T"), 1)
        for queue in ends:
            await producer.send_to(queue, Message("T", b"old"))
        async with PullConsumer("g", instance=producer.instance) as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(_follow, consumer, ends, "*")
            await trio.sleep(0.3)  # three of four are refused by now
            for queue in ends:
                await producer.send_to(queue, Message("T", f"new {queue.queue_id}".encode()))
            seen = list[str]()

            def all_seen() -> bool:
                seen.append(capsys.readouterr().out)
                return all(f"new {queue.queue_id}" in "".join(seen) for queue in ends)

            await until(all_seen)
            nursery.cancel_scope.cancel()
