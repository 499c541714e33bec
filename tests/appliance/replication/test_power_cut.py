"""The power of a slave fails at any step: what it reported is on its disk, its log the beginning of its master's."""

import random
from functools import partial

import pytest
import trio

from appliance.replication.assembling import RecordAssembler
from appliance.replication.following import Follower, FollowRules, MasterEdges
from netstack.wire.replication import LogSlice
from storage_driver.record import Message, encode_host
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import DiskStep, MemoryDisk
from tests.power_cut.harness import FOLDERS, deterministic
from tests.power_cut.harness import config as small

pytestmark = pytest.mark.slow
HOST = encode_host("127.0.0.1", 10911)
MESSAGES = 60


class Nobody:
    """A master that is never asked."""

    async def edges(self) -> MasterEdges:
        raise OSError("nobody")

    async def record_at(self, log_offset: int) -> bytes:
        raise OSError("nobody")


class Cut:
    """A disk after a power cut, and what had been reported before it."""

    def __init__(self, disk: MemoryDisk, reported: int) -> None:
        self.disk, self.reported = disk, reported


async def _source(found: list[bytes], dice: random.Random) -> None:
    """Fill a log of more than one file; give it whole, blanks included."""
    async with open_store(small(), now_ms=lambda: 5, disk=MemoryDisk(folders=FOLDERS)) as store:
        for number in range(MESSAGES):
            body = b"%d " % number + bytes(dice.choice([10, 700, 7000]))
            await store.wait_committed(store.put(Message("T", number % 3, body, b"", 0, 0, 1, HOST)).end)
        assert len(store.segments()) > 1
        found.append(b"".join(store.read_log(each.base, each.size) for each in store.segments()))


async def _copy(disk: MemoryDisk, log: bytes, cuts: list[Cut], dice: random.Random) -> None:
    """Follow a log in slices of any size, and cut the power at every step."""
    async with open_store(small(copies_only="a slave"), now_ms=lambda: 5, disk=disk) as store:
        follower = Follower(FollowRules("nobody", 1), store, Nobody())
        assembler, at, reported = RecordAssembler(0, most_bytes=1 << 20), 0, 0

        def cut(step: DiskStep) -> None:
            cuts.append(Cut(disk.after_power_cut(dice), reported))

        disk.before = cut
        while at < len(log):
            data = log[at : at + dice.choice([100, 900, 5000])]
            for run in assembler.feed(LogSlice(at, data)):
                await follower._append(run)
            at += len(data)
            await trio.sleep(dice.choice([0, 0.02, 0.3]))
            reported = max(reported, follower._durable())
        await store.wait_committed(store.end)
        disk.before = lambda step: None


async def _check(cut: Cut, log: bytes, seen: list[int]) -> None:
    async with open_store(small(copies_only="a slave"), now_ms=lambda: 5, disk=cut.disk) as store:
        assert store.end >= _before_blank(log, cut.reported), f"reported {cut.reported}, the log ends at {store.end}"
        assert _whole(store) == log[: store.end], store.verdict.reasons
        assert store.losses.messages() == 0
        seen.append(store.end)


def _before_blank(log: bytes, end: int) -> int:
    """Return the end of the records that are reported: a blank that nothing follows is on no disk."""
    return len(log[:end].rstrip(b"\0")) - 8 if end and not log[end - 1] and end % small().segment_bytes == 0 else end


def _whole(store: MessageStore) -> bytes:
    return b"".join(store.read_log(each.base, each.size) for each in store.segments())


@pytest.mark.parametrize("seed", range(4))
def test_what_a_slave_has_reported_survives_a_power_cut_at_any_step(seed: int) -> None:
    dice, found, cuts, seen = random.Random(seed), list[bytes](), list[Cut](), list[int]()
    deterministic(partial(_source, found, dice), seed)
    deterministic(partial(_copy, MemoryDisk(folders=FOLDERS), found[0], cuts, dice), seed)
    assert len(cuts) > 100
    assert max(cut.reported for cut in cuts) > 0
    for cut in cuts:
        deterministic(partial(_check, cut, found[0], seen), seed)
    assert max(seen) > small().segment_bytes, "some cuts are in the second file"
