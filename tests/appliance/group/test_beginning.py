"""A box that ran alone becomes a member with an empty log, if it holds nothing of clients."""

import json
from pathlib import Path

import pytest

from appliance.broker.tables.topics import PROBE_TOPIC
from appliance.group.beginning import begin_empty
from storage_driver.store import open_store
from tests.storage_driver.test_store import Clock, message, put_all, small

TABLES = ("rocketbox/identity.json", "config/topics.json", "consumequeue")


async def ran_alone(tmp_path: Path, *topics: str) -> Path:
    """Return the store of a box that stored a message in each of these topics."""
    config = small(tmp_path)
    async with open_store(config, now_ms=Clock()) as store:
        await put_all(store, [message(topic=topic) for topic in topics])
    make_topic(config.root, "box", perm=7)
    return config.root


def make_topic(root: Path, name: str, *, perm: int = 6) -> None:
    path = root / "config" / "topics.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"topicConfigTable": {name: {"perm": perm}}}))


def is_empty(root: Path) -> bool:
    return not list((root / "commitlog").iterdir()) and not any((root / name).exists() for name in TABLES)


async def test_messages_of_self_tests_are_let_go(tmp_path: Path) -> None:
    root = await ran_alone(tmp_path, PROBE_TOPIC, PROBE_TOPIC)
    assert begin_empty(root)
    assert is_empty(root)
    assert not begin_empty(root)
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        assert (store.end, store.verdict.verdict) == (0, "clean")


async def test_one_message_of_a_client_keeps_all(tmp_path: Path) -> None:
    root = await ran_alone(tmp_path, PROBE_TOPIC, "orders")
    assert not begin_empty(root)
    assert not is_empty(root)


async def test_a_topic_that_somebody_made_keeps_all(tmp_path: Path) -> None:
    root = await ran_alone(tmp_path, PROBE_TOPIC)
    make_topic(root, "orders")
    assert not begin_empty(root)


async def test_who_was_a_member_keeps_what_it_has(tmp_path: Path) -> None:
    root = await ran_alone(tmp_path, PROBE_TOPIC)
    (root / "rocketbox" / "vote").write_bytes(b"promised")
    assert not begin_empty(root)


@pytest.mark.parametrize("harm", ["the log is damaged", "its beginning was deleted", "the table is damaged"])
async def test_what_cannot_be_known_keeps_all(tmp_path: Path, harm: str) -> None:
    root = await ran_alone(tmp_path, PROBE_TOPIC, PROBE_TOPIC)
    (segment,) = (root / "commitlog").iterdir()
    if harm == "the table is damaged":
        (root / "config" / "topics.json").write_bytes(b"{")
    elif harm == "the log is damaged":
        with segment.open("r+b") as file:
            file.seek(8)
            file.write(b"\xff")
    else:
        segment.rename(segment.with_name(f"{segment.stat().st_size:020d}"))
    assert not begin_empty(root)


async def test_a_power_cut_in_between_is_gone_on_with(tmp_path: Path) -> None:
    root = await ran_alone(tmp_path, PROBE_TOPIC)
    (root / "rocketbox" / "identity.json").unlink()
    (root / "config" / "topics.json").unlink()
    assert begin_empty(root)
    assert is_empty(root)
