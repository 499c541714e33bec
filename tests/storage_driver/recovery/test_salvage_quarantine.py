"""What cuts took from a log comes back as a store of its own."""

from pathlib import Path

import pytest

from storage_driver import fsck
from storage_driver.errors import StoreRefused
from storage_driver.files.disk import RealDisk
from storage_driver.log.truncation import Truncation
from storage_driver.record import MessageQueue
from storage_driver.recovery.salvage_quarantine import salvage_quarantine
from storage_driver.store import MessageStore, open_store
from tests.storage_driver.test_store import Clock, bodies, message, small


async def append(store: MessageStore, *names: bytes) -> int:
    """Append messages and one of the box's own, which nobody salvages; return where the log ended before."""
    at = store.end
    for name in names:
        store.put(message(name))
    store.put(message(b"a table", topic="RBX_STATE"))
    await store.wait_committed(store.end)
    return at


async def test_messages_that_two_cuts_took_are_in_one_store_and_can_be_consumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small(tmp_path, shared=False)
    large = [b"%d" % number + b"x" * 30_000 for number in range(5)]
    for names in ([b"first 1", b"first 2", *large], [b"second"]):
        async with open_store(config, now_ms=Clock()) as store:
            at = await append(store, b"kept")
            at = await append(store, *names)
            end = store.end
        Truncation(RealDisk(), config.root).begin(at, end, "the leader differs")
    async with open_store(config, now_ms=Clock()) as store:
        assert set(await bodies(store)) == {b"kept"}
    assert fsck.main([str(config.root)]) == 0
    assert "ranges of the log are in quarantine/: `--salvage OUT --quarantine`" in capsys.readouterr().out
    out = tmp_path / "out"
    assert fsck.main([str(config.root), "--salvage", str(out), "--quarantine"]) == 0
    said = capsys.readouterr().out
    assert "salvaged 8 messages of" in said
    assert "topics   T" in said
    async with open_store(config._replace(root=out), now_ms=Clock()) as store:
        assert [body[:7] for body in await bodies(store)] == [
            *(b"first 1", b"first 2", b"0xxxxxx", b"1xxxxxx", b"2xxxxxx", b"3xxxxxx", b"4xxxxxx", b"second")
        ]
        assert store.min_offset(MessageQueue("T", 0)) == 0
    with pytest.raises(StoreRefused, match="not empty"):
        salvage_quarantine(RealDisk(), config.root, out, segment_bytes=1 << 20)


def test_without_anything_aside_or_a_place_for_it_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "commitlog").mkdir()
    assert fsck.main([str(tmp_path), "--salvage", str(tmp_path / "out"), "--quarantine"]) == 2
    assert "has no part of the log" in capsys.readouterr().err
    assert fsck.main([str(tmp_path), "--quarantine"]) == 2
    assert not (tmp_path / "out").exists()
