"""Looking into queues: what is there, without a trace of who looked."""

from pathlib import Path

from netstack.client import Message, Producer
from netstack.client.admin import Admin
from netstack.client.consume.queue_reader import QueueReader
from tests.appliance.box import running_box


async def test_a_reader_gives_messages_by_offset_and_time_and_is_no_consumer(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, Producer("p", f"127.0.0.1:{box.namesrv_port}") as producer:
        sent = await producer.send(Message("T", b"body", tags="a"))
        before = set(await Admin(producer.instance).groups())
        reader, queue = QueueReader(producer.instance), sent.queue
        assert queue in await reader.queues("T")
        assert await reader.ends(queue) == (0, 1)
        assert await reader.offset_at(queue, 0) == 0
        assert [each.body for each in (await reader.pull(queue, 0)).messages] == [b"body"]
        assert (await reader.pull(queue, 0, expression="b")).messages == []
        assert set(await Admin(producer.instance).groups()) == before
