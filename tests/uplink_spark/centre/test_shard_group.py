import json
import threading
from pathlib import Path

import pytest
import trio

from storage_driver.log.clock import wall_ms
from uplink_spark.centre.gateway import open_parts
from uplink_spark.centre.hub import Hub
from uplink_spark.centre.metric_families import read_families
from uplink_spark.centre.shard_group import (
    FOLDER,
    FORGET_S,
    STALE_BEATS,
    GatewayBeats,
    Pulse,
    ShardGroup,
    owner_path,
    owners_of,
    path_of,
    read_json,
    write_json,
)
from uplink_spark.centre.zone_files.landing import Covering, ShardWriter
from uplink_spark.config import GatewayConfig
from uplink_spark.errors import LandingError
from uplink_spark.testing_site import until

NAMES = ("a:1", "b:2", "c:3")


def test_shards_are_spread_and_few_move_when_a_gateway_goes() -> None:
    before, after = owners_of(64, NAMES), owners_of(64, NAMES[:2])
    assert sorted(before.count(name) for name in NAMES) == [21, 21, 22]
    assert [after.count(name) for name in NAMES] == [32, 32, 0]
    moved = [one for one, other in zip(before, after, strict=True) if one != other]
    assert before.count("c:3") <= len(moved) <= before.count("c:3") + 6


@pytest.mark.parametrize("shards", [1, 2, 4, 16])
def test_no_gateway_has_more_than_its_share_whatever_their_names_are(shards: int) -> None:
    for count in (1, 2, 3, 4, 7):
        for site in range(50):
            names = [f"gw{number}.site{site}.example:10940" for number in range(count)]
            owners = owners_of(shards, names)
            assert max(map(owners.count, names)) == -(-shards // count)
            assert (
                owners_of(shards, set(names)) == owners
            )  # each gateway finds the same, in whatever order it sees them


def test_a_gateway_lives_while_its_beat_changes() -> None:
    pulse = Pulse("a:1")
    assert pulse.living({"a:1": 1, "b:2": 7, "c:3": 1}, 0.0, 5.0) == set(NAMES)  # each is believed at first
    assert pulse.living({"a:1": 2, "b:2": 8, "c:3": 1}, 5.0, 5.0) == set(NAMES)
    assert pulse.living({"a:1": 3, "b:2": 9, "c:3": 1}, 6.0, 5.0) == {"a:1", "b:2"}
    assert pulse.living({"a:1": 4, "b:2": 1, "c:3": 0}, 12.0, 5.0) == set(NAMES)  # both were started again
    assert pulse.living({}, 13.0, 5.0) == {"a:1"}


def test_a_gateway_that_has_not_beaten_for_long_is_forgotten_and_the_own_one_never() -> None:
    pulse = Pulse("a:1")
    pulse.living({"a:1": 1, "b:2": 7, "c:3": 1}, 0.0, 5.0)
    pulse.living({"a:1": 1, "b:2": 7, "c:3": 2}, 9.0, 5.0)
    assert (pulse.long_dead(FORGET_S), pulse.long_dead(FORGET_S + 1)) == ({}, {"b:2": 7})


def test_the_file_of_a_forgotten_gateway_goes_unless_it_beats_again(tmp_path: Path) -> None:
    centre = Centre(tmp_path / "zone", "a:1")
    beats = GatewayBeats(centre.hub.records, "a:1", 1.0)
    for address, beat in (("dead:1", 5), ("back:1", 6)):
        write_json(centre.hub.records, path_of(address), {"address": address, "beat": beat})
    assert beats._exchange({"dead:1": 5, "back:1": 5}) == {"a:1": 1, "back:1": 6}
    assert sorted(centre.hub.records.names(FOLDER)) == ["a_1.json", "back_1.json"]


class Centre:
    """A gateway of several, without its port."""

    def __init__(self, root: Path, own: str) -> None:
        config = GatewayConfig(str(root), ("127.0.0.1", 1), shards=4)
        zone, make_lander, records = open_parts(config, wall_ms)
        self.hub = Hub(config, zone, {}, records)
        self.group = ShardGroup(self.hub, own, make_lander, beat_s=0.05)


async def test_a_gateway_takes_all_shards_and_gives_some_up_to_another(tmp_path: Path) -> None:
    root = tmp_path / "zone"
    first, second = Centre(root, "a:1"), Centre(root, "b:2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.group.run)
        await until(lambda: len(first.hub.landers) == 4)
        nursery.start_soon(second.group.run)
        mine = [shard for shard, owner in enumerate(owners_of(4, ("a:1", "b:2"))) if owner == "a:1"]
        await until(lambda: len(second.hub.landers) == 4 - len(mine))
        assert sorted(first.hub.landers) == mine
        (other, *_) = second.hub.landers
        assert (first.group.elsewhere(other), second.group.elsewhere(other)) == ("b:2", None)
        nursery.cancel_scope.cancel()


async def test_counters_do_not_fall_while_another_gateway_has_a_shard(tmp_path: Path) -> None:
    centre, other = Centre(tmp_path / "zone", "a:1"), "b:2"
    theirs = owners_of(4, ("a:1", other)).index(other)

    def commits() -> float:
        found = {family.name: family for family in read_families(centre.hub)}
        return found["rocketbox_gateway_commits"].samples[0].value

    async with trio.open_nursery() as nursery:
        nursery.start_soon(centre.group.run)
        await until(lambda: len(centre.hub.landers) == 4)
        before = centre.hub.landers[theirs]
        before.counts.commits = 3
        write_json(centre.hub.records, path_of(other), {"address": other, "beat": 1})
        await until(lambda: theirs not in centre.hub.landers)
        assert commits() == 3
        centre.hub.records.delete(path_of(other))
        await until(lambda: theirs in centre.hub.landers)
        centre.hub.landers[theirs].counts.commits += 1
        assert commits() == 4
        nursery.cancel_scope.cancel()


async def test_a_shard_that_another_gateway_writes_is_left_and_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    centre = Centre(tmp_path / "zone", "a:1")

    async def beaten(_: object) -> None:
        raise LandingError("shard 0002: another gateway wrote seq 0")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(centre.group.run)
        await until(lambda: len(centre.hub.landers) == 4)
        lander = centre.hub.landers[2]
        monkeypatch.setattr(lander, "land", beaten)
        lander._full.set()
        lander._arrived.set()
        await until(lambda: centre.hub.landers.get(2, lander) is not lander)
        nursery.cancel_scope.cancel()


async def test_a_gateway_beats_while_it_opens_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    centre, gate, open_shard = Centre(tmp_path / "zone", "a:1"), threading.Event(), ShardWriter.open
    beats = tmp_path / "zone" / FOLDER / "a_1.json"

    def open_late(writer: ShardWriter, cover: Covering) -> None:
        assert gate.wait(20)
        open_shard(writer, cover)

    monkeypatch.setattr(ShardWriter, "open", open_late)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(centre.group.run)
        try:
            await until(lambda: beats.exists() and json.loads(beats.read_text())["beat"] > STALE_BEATS)
        finally:
            gate.set()
        await until(lambda: len(centre.hub.landers) == 4)
        nursery.cancel_scope.cancel()
    assert not beats.exists()  # nobody waits for it


async def test_a_zone_that_takes_no_beat_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records, calls, errors = Centre(tmp_path / "zone", "a:1").hub.records, [0], iter("xxxy")

    def failing(_path: str, _data: bytes) -> None:
        calls[0] += 1
        raise OSError(28, next(errors, "y"))

    monkeypatch.setattr(records, "replace", failing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(GatewayBeats(records, "a:1", 0.001).run)
        await until(lambda: calls[0] > 6)
        nursery.cancel_scope.cancel()
    told = [line.rpartition("] ")[2] for line in caplog.messages if "looked at" in line]
    assert told == ["x; tried again", "y; tried again"]


async def test_a_shard_that_another_gateway_has_taken_stays_its_own(tmp_path: Path) -> None:
    centre = Centre(tmp_path / "zone", "a:1")
    for holder, after in (("a:1", ""), ("b:2", "b:2")):
        write_json(centre.hub.records, owner_path(1), {"address": holder})
        centre.group._disown(1)
        assert read_json(centre.hub.records, owner_path(1)) == {"address": after}


async def test_a_shard_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    centre = Centre(tmp_path / "zone", "a:1")
    folder = tmp_path / "zone/manifest/0001"
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(centre.group.run)
        await until(lambda: sorted(centre.hub.landers) == [0, 2, 3])
        folder.unlink()
        await until(lambda: len(centre.hub.landers) == 4)
        nursery.cancel_scope.cancel()
