"""Broadcasting offsets in their file: Java's form, a copy for the worst, errors that say what to do."""

from pathlib import Path

import pytest
import trio

from netstack.client.consume.local_offsets import LocalOffsets
from netstack.client.errors import ClientError
from netstack.wire.json_body import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 3)
BY_JAVA = b'{\n\t"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:17\n\t}\n}'


async def test_offsets_come_back_after_a_restart(tmp_path: Path) -> None:
    store = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "group")
    await store.load()
    assert store.get(QUEUE) == await store.read(QUEUE) == -1
    store.set(QUEUE, 5)
    store.raise_to(QUEUE, 4)
    store.forget(QUEUE)
    await store.persist([QUEUE])
    assert store.path == tmp_path / "10.0.0.1@DEFAULT" / "group" / "offsets.json"
    again = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "group")
    await again.load()
    assert again.get(QUEUE) == 5


async def test_a_file_of_java_is_read(tmp_path: Path) -> None:
    store = LocalOffsets(tmp_path, "c", "g")
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(BY_JAVA)
    await store.load()
    assert store.get(QUEUE) == 17


async def test_a_damaged_file_is_replaced_by_its_copy_and_without_one_refused(tmp_path: Path) -> None:
    store = LocalOffsets(tmp_path, "c", "g")
    for offset in (1, 2):
        store.set(QUEUE, offset)
        await store.persist([])
    store.path.write_bytes(b'{"offsetTable":{{')
    await store.load()
    assert store.get(QUEUE) == 1
    store.path.with_suffix(".json.bak").unlink()
    with pytest.raises(ClientError, match="delete or repair"):
        await store.load()


async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    store = LocalOffsets(tmp_path / "file", "c", "g")
    await store.persist([])
    assert "offsets_folder" in caplog.text


async def test_of_offsets_written_at_once_the_last_stay_and_none_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = LocalOffsets(tmp_path, "c", "g"), LocalOffsets(tmp_path, "c", "g")  # as of another process
    for offset in range(20):
        async with trio.open_nursery() as nursery:
            for each in (store, other, store):
                each.set(QUEUE, offset)
                nursery.start_soon(each.persist, [QUEUE])
        await store.load()
        assert store.get(QUEUE) == offset
    assert not caplog.text
    assert sorted(path.name for path in store.path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]
