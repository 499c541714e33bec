"""`rocketbox tail`: nothing stays behind; `-f` at a box that has no room for its long polls."""

from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.commands.messaging.tail import _follow
from netstack.client import Message, Producer
from netstack.client.consume.queue_reader import QueueReader
from tests.appliance.box import running_box
from tests.waiting import until


def test_looking_at_messages_leaves_no_group_and_no_topic_behind(rocketbox: Any) -> None:
    def there() -> list[str]:
        listed = [rocketbox(what, "list", "--all", "--json")[1] for what in ("groups", "topics")]
        return [str(row.get("group", row.get("topic"))) for rows in listed for row in rows]

    rocketbox("send", "Looked", "x")
    before = there()
    assert "Looked" in before
    assert rocketbox("tail", "Looked")[1][0]["body"] == "x"
    assert rocketbox("messages", "find", "Looked", "--since", "1h", "--json")[1][0]["body"] == "x"
    assert there() == before


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
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_follow, QueueReader(producer.instance), ends, "*")
            await trio.sleep(0.3)  # three of four are refused by now
            for queue in ends:
                await producer.send_to(queue, Message("T", f"new {queue.queue_id}".encode()))
            seen = list[str]()

            def all_seen() -> bool:
                seen.append(capsys.readouterr().out)
                return all(f"new {queue.queue_id}" in "".join(seen) for queue in ends)

            await until(all_seen)
            nursery.cancel_scope.cancel()
