"""Mutated frames against the gateway's decoders: a right code or a close, nothing landed, nothing else raised."""

from __future__ import annotations

import random
import resource
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from uplink_spark.centre.verify import judge_for, verify_piece
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.errors import ProtocolError, Refused
from uplink_spark.testing import SOURCE, MadeRecord, gap_piece, landed_entries, landed_log, log_piece
from uplink_spark.testing_site import box, gateway, message, shipped, until
from uplink_spark.wire import frames
from uplink_spark.wire.frames import Hello

HELLO = Hello("box-17", ((SOURCE.epoch, 0),), ((7, 0),), 0, 1 << 40, 1_700_000_000_000, 1, "fuzz", ("T",))
RECORDS = [MadeRecord(queue_offset=n, body=b"b" * (n * 7 % 50), properties="KEYS\x01k") for n in range(30)]
PIECES = [
    log_piece(RECORDS, codec="none")[1],
    log_piece(RECORDS, codec="zlib")[1],
    log_piece(RECORDS, codec="zstd")[1],
    gap_piece(
        0, 970, {"id": [7, 1], "class": "missing", "reason": "operator", "queues": [["T", 0, 1, 2, 2]]}
    ).container,
]
STATUS = frames.Status(1, 2, 3, 4, 5, 6, "clean", "fuzz", 7, 1).encode()[5:]
CODES = {"damaged", "bad_records", "too_big", "codec", "not_yours", "holes", "diverged"}


def mutate(dice: random.Random, data: bytes) -> bytes:
    """Flip, cut, double, insert, or write lengths that lie."""
    bad = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        at = dice.randrange(len(bad) + 1)
        kind = dice.randrange(6)
        if kind == 0 and at < len(bad):
            bad[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            del bad[at : at + dice.randrange(1, 40)]
        elif kind == 2:
            bad[at:at] = bad[at : at + dice.randrange(1, 40)]
        elif kind == 3:
            bad[at:at] = dice.randbytes(dice.randrange(1, 9))
        elif kind == 4:
            bad[at : at + 4] = dice.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)))
        else:
            bad[at : at + 1] = dice.choice((b"\x9b", b"\xbf", b"\xc1", b"\xf9", b"\x5b", b"\x1b", b"\x81" * 300))
        if not bad:
            break
    return bytes(bad)


def fuzz(mutants: int, seed: int) -> int:
    """Try that many mutants of each kind and return how many were let in; anything else than a code escapes."""
    print(f"seed {seed}")
    dice, judge, cover = random.Random(seed), judge_for(HELLO), ShardCover()
    admitted, codes = 0, set[str]()
    for _ in range(mutants):
        container = mutate(dice, dice.choice(PIECES))
        try:
            cover.draft().judge(verify_piece(container, judge))
            admitted += container not in PIECES
        except Refused as reason:
            codes.add(reason.code)
        for decode, body in ((frames.decode_hello, HELLO.encode()[5:]), (frames.decode_status, STATUS)):
            try:
                decode(mutate(dice, body))
            except ProtocolError:
                pass
        try:
            frames.read_frame_head(dice.randbytes(5), pieces=dice.random() < 0.5)
        except ProtocolError:
            pass
    assert codes <= CODES
    return admitted


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])  # the same work in every run; other seeds in `make soak`
def test_mutants_end_in_a_code_and_memory_stays_bounded(seed: int) -> None:
    before = peak_mib()
    print(f"{fuzz(4000, seed)} admitted")
    assert peak_mib() - before < 100


@pytest.mark.soak
def test_mutants_for_minutes() -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        fuzz(4000, random.randrange(1 << 30))


async def nonsense(port: int, dice: random.Random) -> None:
    """One connection that says something wrong, at once or after a right HELLO."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        hello = replace(HELLO, box="box-18").encode()
        piece = frames.encode_frame(frames.FrameType.PIECE, mutate(dice, dice.choice(PIECES)))
        said = dice.choice((mutate(dice, hello), hello + piece, hello + mutate(dice, piece), dice.randbytes(99)))
        with suppress(trio.BrokenResourceError):
            await stream.send_all(said)
            await stream.send_eof()
            with trio.fail_after(30):
                async for _ in stream:
                    pass


@pytest.mark.slow
async def test_a_box_ships_exactly_beside_peers_that_send_nonsense(tmp_path: Path) -> None:
    dice, sent = random.Random(7), 0
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        for _ in range(30):
            for _ in range(20):
                store.put(message(sent))
                sent += 1
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(nonsense, port, dice)
        await store.wait_committed(store.end)
        await until(shipped(store, uplink))
        figures = uplink.statistics().counts
        assert (figures.connects, figures.refused, uplink.statistics().alarms) == (1, {}, {})
    assert len(landed_log(tmp_path / "landing", "box-17")) == sent
    for entry in landed_entries(tmp_path / "landing", "box-18"):  # whose identity, ranges and records were right
        assert (entry.epoch, entry.run) == (SOURCE.epoch, SOURCE.run)
