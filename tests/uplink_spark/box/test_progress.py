"""Rates, the rest the cutter takes for the senders of its box, and the size of the chunks that leave."""

from __future__ import annotations

from uplink_spark.box.progress import CutterPause
from uplink_spark.wire.link import CHUNK, FAST_CHUNK, FrameQueue


def test_a_box_nobody_sends_to_ships_without_a_rest() -> None:
    pace = CutterPause()
    assert pace.rest_s(0.02, 10.0) == 0
    for move in range(CutterPause.BUSY_GROUPS):
        pace.moved(move * 1.0)  # one commit a second
    assert pace.rest_s(0.02, float(CutterPause.BUSY_GROUPS)) == 0


def test_senders_that_keep_the_log_busy_get_most_of_the_time() -> None:
    pace = CutterPause()
    for move in range(CutterPause.BUSY_GROUPS):
        pace.moved(5 + move * 0.01)
    assert pace.rest_s(0.02, 5.3) == 0.02 * CutterPause.REST
    assert pace.rest_s(0.02, 7.0) == 0  # they have stopped


def commits(pace: CutterPause, begin: float, beside_s: float, alone_s: float) -> float:
    """Commits of a second in which the cutter works and rests in turns; returns when the last was."""
    now = begin
    for turn in range(40):
        pace.working = turn % 2 == 0
        now += beside_s if pace.working else alone_s
        pace.moved(now)
    return now


def test_the_cutter_rests_longer_while_commits_are_slower_beside_its_work_and_less_when_they_no_longer_are() -> None:
    pace, now, rests = CutterPause(), 5.0, list[float]()
    for _ in range(20):
        now = commits(pace, now, 0.030, 0.020)
        rests.append(pace.rest_s(0.02, now))
    assert rests[0] < rests[5] < rests[-1] == 0.02 * CutterPause.LONGEST_REST
    assert pace.rest_s(0.02, now, pressed=True) == 0.02 * CutterPause.REST
    for _ in range(40):
        now = commits(pace, now, 0.020, 0.020)
        rests.append(pace.rest_s(0.02, now))
    assert rests[-1] == 0.02 * CutterPause.REST


class Wire:
    """A stream that notes what it was handed at once."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.sizes.append(len(data))

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return b""

    async def aclose(self) -> None:
        pass


class Cap:
    """A cap is in force or not."""

    def __init__(self, *, capped: bool) -> None:
        self._capped = capped

    async def wait_for(self, length: int) -> bool:
        return self._capped


async def test_a_fast_socket_gets_large_chunks_unless_a_cap_is_in_force() -> None:
    fast, capped = Wire(), Wire()
    await FrameQueue(fast, Cap(capped=False)).send(bytes(1 << 20))
    await FrameQueue(capped, Cap(capped=True)).send(bytes(1 << 20))
    assert fast.sizes[0] == CHUNK
    assert max(fast.sizes) == FAST_CHUNK
    assert set(capped.sizes) == {CHUNK}
    assert sum(fast.sizes) == sum(capped.sizes) == 1 << 20
