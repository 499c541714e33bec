"""Two boxes as processes: an answered send is on both disks, whatever is killed; without the second disk it is 14."""

import json
import os
import random
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from struct import pack
from typing import Any

import pytest
import trio

from appliance import admin
from appliance.health.health_file import describe, read_health
from netstack.errors import AskTimeout, ChannelClosed
from netstack.serving.channel import Channel, open_channel
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand
from storage_driver.log.clock import wall_ms
from storage_driver.record import encode_host
from storage_driver.store import StoreConfig, open_store
from tests.appliance.box import send
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import QUEUES, RealMember, bodies, log_files, pair_of, start, until, wait_for
from tests.storage_driver.test_store import bodies as stored_bodies
from tests.waiting import until_it

pytestmark = [pytest.mark.slow, needs_openssl]
LOST = (OSError, AskTimeout, ChannelClosed, trio.BrokenResourceError, trio.ClosedResourceError)
NOT_AVAILABLE = 14


async def led(a: RealMember, b: RealMember) -> None:
    """Start both, let the first one lead."""
    await start(a, b)
    await a.ask("group.promote")
    await wait_for(a, serves=True)
    await wait_for(b, leader="a")


async def test_a_send_is_on_both_disks_or_refused_with_14_and_the_copy_catches_up(tmp_path: Path) -> None:
    a, b = pair_of(tmp_path)
    try:
        await led(a, b)
        async with open_channel("127.0.0.1", a.broker_port) as channel:
            assert (await channel.ask(send("T", b"on both"), 10)).code == 0
            await trio.to_thread.run_sync(b.kill)
            assert b"on both" in b"".join(log_files(b).values()), "it was there before the answer"
            answer = await channel.ask(send("T", b"on one"), 10)
            assert answer.code == NOT_AVAILABLE
            assert "no other disk has the message after 1000 ms: b cannot be reached" in str(answer.remark)
            health = json.loads((a.data / "run/health.json").read_text())
            assert "a leads, and takes no messages until b is back, term" in describe(health)
            assert health["replication"]["copies_there"] == 1
            assert "no_quorum" in reasons(a)
            await start(b)
            with trio.fail_after(60):
                while (await channel.ask(send("T", b"on both again"), 10)).code != 0:  # noqa: ASYNC110
                    await trio.sleep(0.1)
            await until(lambda: "copies: 2 wanted, 2 there" in describe(read_health(a.data / "run/health.json")))
        await until(lambda: log_files(a) == log_files(b))
        assert {b"on both", b"on one", b"on both again"} <= set(await bodies(a)), "what was refused may come later"
        async with open_channel("127.0.0.1", b.broker_port) as channel:
            answer = await channel.ask(send("T", b"at the follower"), 10)
            assert answer.code == 0, "the follower hands it on"
        await until(lambda: log_files(a) == log_files(b))
        assert b"at the follower" in await bodies(a)
    finally:
        for member in (a, b):
            if member.running:
                member.kill()


async def test_what_one_disk_acknowledged_alone_is_cut_when_the_other_took_over_and_is_told(tmp_path: Path) -> None:
    a, b = pair_of(tmp_path, "acknowledge = 'one'")
    try:
        await led(a, b)
        async with open_channel("127.0.0.1", a.broker_port) as channel:
            assert (await channel.ask(send("T", b"on both"), 10)).code == 0
            await until(lambda: log_files(a) == log_files(b))
            await trio.to_thread.run_sync(b.kill)
            assert (await channel.ask(send("T", b"acknowledged by a alone"), 10)).code == 0
        await trio.to_thread.run_sync(a.kill)
        await start(b)
        with pytest.raises(admin.AdminRefused, match="--accept-loss"):
            await b.ask("group.promote")
        await b.ask("group.promote", accept_loss=True)
        await wait_for(b, serves=True)
        async with open_channel("127.0.0.1", b.broker_port) as channel:
            assert (await channel.ask(send("T", b"at b"), 10)).code == 0
        await start(a)
        await until(lambda: not a.running or log_files(a) == log_files(b))
        if not a.running:  # it had saved how far it had acknowledged: its next start cuts the log
            assert a.process is not None
            assert a.process.wait() == os.EX_TEMPFAIL
            assert "event=committed_log_cut" in a.log_tail(1000)
            assert "cuts the log at" in a.log_tail(400).splitlines()[-1]
            assert "Traceback" not in a.log_tail(4000)
            await start(a)
        await until(lambda: log_files(a) == log_files(b))
        expected = {b"on both", b"at b"}
        await until_it(lambda: holds(a, expected))
        assert set(await bodies(b)) == expected
        quarantine = b"".join(path.read_bytes() for path in (a.data / "store" / "quarantine").iterdir())
        assert b"acknowledged by a alone" in quarantine
        await trio.to_thread.run_sync(a.kill)
        assert await salvaged(a, tmp_path / "taken-back") == [b"acknowledged by a alone"]
    finally:
        for member in (a, b):
            if member.running:
                member.kill()


async def salvaged(member: RealMember, folder: Path) -> list[bytes]:
    """Return the messages of T that `fsck --salvage` finds in what was taken back from a member."""
    words = ["fsck", str(member.data), "--salvage", str(folder / "store"), "--quarantine"]
    done = await trio.run_process([sys.executable, "-m", "appliance", *words], capture_stdout=True, check=False)
    assert b"salvaged" in done.stdout
    async with open_store(StoreConfig(folder / "store", encode_host("10.0.0.1", 1)), now_ms=wall_ms) as store:
        return [body for queue_id in range(QUEUES) for body in await stored_bodies(store, queue_id=queue_id)]


async def test_a_copy_is_taken_anew_by_order_also_when_the_start_that_does_it_is_killed(tmp_path: Path) -> None:
    a, b = pair_of(tmp_path)
    try:
        await led(a, b)
        async with open_channel("127.0.0.1", a.broker_port) as channel:
            for number in range(20):
                assert (await channel.ask(send("T", b"%d" % number + b"x" * 300_000), 10)).code == 0
            with pytest.raises(admin.AdminRefused, match="this box leads"):
                await a.ask("group.resync")
            await b.ask("group.resync")
            await until(lambda: not b.running)
            assert "the next start gives the copy up" in b.log_tail(2000)
            begun = threading.Thread(target=start_whatever_comes, args=(b,))
            begun.start()
            await until(lambda: any(b.data.glob("store/replaced-*")))
            await trio.to_thread.run_sync(b.kill)
            await trio.to_thread.run_sync(begun.join)
            await start(b)
            await until(lambda: log_files(a) == log_files(b))
            with trio.fail_after(60):
                while (await channel.ask(send("T", b"after"), 10)).code != 0:  # noqa: ASYNC110
                    await trio.sleep(0.1)
        await b.ask("group.promote")
        await wait_for(b, serves=True)
        assert len(await bodies(b)) == 21
        [kept] = b.data.glob("store/replaced-*")
        assert b"19x" in b"".join(path.read_bytes() for path in (kept / "commitlog").iterdir())
    finally:
        for member in (a, b):
            if member.running:
                member.kill()


async def test_a_topic_may_want_both_disks_on_a_box_that_waits_for_one(tmp_path: Path) -> None:
    a, b = pair_of(tmp_path, "acknowledge = 'one'")
    stored = [b"on both disks", b"through b", b"repeated"]
    try:
        await led(a, b)
        await topics("create", "safe", "--acknowledge", "both", "--queues", "4", at=a)
        async with open_channel("127.0.0.1", a.broker_port) as channel:
            assert (await channel.ask(send("safe", b"on both disks"), 10)).code == 0
            assert b"on both disks" in b"".join(log_files(b).values()), "it was there before the answer"
            async with open_channel("127.0.0.1", b.broker_port) as at_b:
                assert (await at_b.ask(send("safe", b"through b"), 10)).code == 0
            assert b"through b" in b"".join(log_files(b).values()), "handed on, and there before the answer"
            await repeated_while_it_hangs(channel, b)
            half = await channel.ask(send("safe", b"half", "TRAN_MSG\x01true\x02PGROUP\x01P\x02"), 10)
            await trio.to_thread.run_sync(b.kill)
            await until_it(lambda: is_cut_off(a, "b"))
            for request in (send("safe", b"2"), batch_of("safe", b"3"), commit_of(half, "P")):
                answer = await channel.ask(request, 10)
                assert (answer.code, "b cannot be reached" in str(answer.remark)) == (NOT_AVAILABLE, True)
            assert (await channel.ask(send("T", b"on a"), 10)).code == 0, "others go on"
            assert await bodies(a, "safe") == stored, "what is refused is not stored, what is repeated once"
            await start(b)
            with trio.fail_after(60):
                while (await channel.ask(commit_of(half, "P"), 10)).code != 0:  # noqa: ASYNC110
                    await trio.sleep(0.1)
        await b.ask("group.promote")
        await wait_for(b, serves=True)
        async with open_channel("127.0.0.1", b.broker_port) as channel:
            assert sorted(await bodies(b, "safe")) == sorted([*stored, b"half"])
            await trio.to_thread.run_sync(a.kill)
            await until_it(lambda: is_cut_off(b, "a"))
            assert (await channel.ask(send("safe", b"4"), 10)).code == NOT_AVAILABLE, "the follower has the policy"
            await topics("change", "safe", "--acknowledge", "one", at=b)
            assert (await channel.ask(send("safe", b"5"), 10)).code == 0
            await topics("change", "safe", "--acknowledge", "both", at=b)
            await b.ask("group.solo")
            assert (await channel.ask(send("safe", b"6"), 10)).code == 0, "a person said so"
            await until(lambda: "one_copy" in reasons(b))
    finally:
        for member in (a, b):
            if member.running:
                member.kill()


async def repeated_while_it_hangs(channel: Channel, follower: RealMember) -> None:
    """Send one message again and again over one connection until the follower's disk has it."""
    request = send("safe", b"repeated", "UNIQ_KEY\x01K1\x02")
    os.kill(follower.pid, signal.SIGSTOP)
    answers = [await channel.ask(request, 10) for _ in range(2)]
    os.kill(follower.pid, signal.SIGCONT)
    assert [answer.code for answer in answers] == [NOT_AVAILABLE] * 2
    with trio.fail_after(60):
        while (await channel.ask(request, 10)).code != 0:  # noqa: ASYNC110
            await trio.sleep(0.5)


async def test_a_topic_may_be_content_with_one_disk_on_a_box_that_waits_for_both(tmp_path: Path) -> None:
    a, b = pair_of(tmp_path)
    try:
        await led(a, b)
        await topics("create", "quick", "--acknowledge", "one", "--queues", "4", at=a)
        await trio.to_thread.run_sync(b.kill)
        async with open_channel("127.0.0.1", a.broker_port) as channel:
            assert (await channel.ask(send("quick", b"1"), 10)).code == 0
            assert (await channel.ask(send("T", b"2"), 10)).code == NOT_AVAILABLE
            assert await bodies(a, "quick") == [], "readers get what both disks have"
            await start(b)
            await until_it(lambda: holds(a, {b"2"}))
        assert await bodies(a, "quick") == [b"1"]
    finally:
        for member in (a, b):
            if member.running:
                member.kill()


async def topics(*words: str, at: RealMember) -> None:
    """Run `rocketbox topics`."""
    command = [sys.executable, "-m", "appliance", "topics", *words, "--namesrv", at.namesrv]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def batch_of(topic: str, body: bytes) -> RemotingCommand:
    """Return a send of one message as a batch."""
    request = send(topic, pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + pack(">h", 0))
    return RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, 0, ext={**request.ext, "m": "true"}, body=request.body)


def commit_of(half: RemotingCommand, group: str) -> RemotingCommand:
    """Return the commit of a half message, for which this was the answer."""
    place = {"tranStateTableOffset": half.ext["queueOffset"], "commitLogOffset": str(int(half.ext["msgId"][16:], 16))}
    ext = {"producerGroup": group, "commitOrRollback": "8", "fromTransactionCheck": "false", **place}
    return RemotingCommand(RequestCode.END_TRANSACTION, 0, ext=ext)


async def test_a_follower_that_hangs_is_left_and_comes_back_level(tmp_path: Path) -> None:
    a, b = pair_of(tmp_path)
    try:
        await led(a, b)
        async with open_channel("127.0.0.1", a.broker_port) as channel:
            assert (await channel.ask(send("T", b"before"), 10)).code == 0
            os.kill(b.pid, signal.SIGSTOP)  # its sockets stay open, as behind a cable that is pulled
            answers = [await channel.ask(send("T", b"%d" % number), 10) for number in range(3)]
            assert [answer.code for answer in answers] == [NOT_AVAILABLE] * 3
            await until_it(lambda: is_cut_off(a, "b"))
            os.kill(b.pid, signal.SIGCONT)
            await until_it(lambda: is_level(a, "b"))
            with trio.fail_after(60):
                while (await channel.ask(send("T", b"after"), 10)).code != 0:  # noqa: ASYNC110
                    await trio.sleep(0.1)
        await until(lambda: log_files(a) == log_files(b))
        assert a.resident_mb() < 192
        assert b.resident_mb() < 192
    finally:
        for member in (a, b):
            if member.running:
                member.kill()


def start_whatever_comes(member: RealMember) -> None:
    """Start a member that is killed before it is ready."""
    with suppress(RuntimeError):
        member.start()


def reasons(member: RealMember) -> list[str]:
    """Return the ids of what a member says is wrong."""
    return [each["id"] for each in read_health(member.data / "run/health.json")["reasons"]]


async def seen_at(leader: RealMember, name: str) -> dict[str, Any]:
    """Return how a leader sees a member."""
    members = (await leader.status()).get("members", [])
    return next((each for each in members if each["member"] == name), {})


async def is_cut_off(leader: RealMember, name: str) -> bool:
    return (await seen_at(leader, name)).get("connected") is False


async def is_level(leader: RealMember, name: str) -> bool:
    seen = await seen_at(leader, name)
    return seen.get("connected") is True and seen.get("behind_bytes") == 0


async def holds(member: RealMember, expected: set[bytes]) -> bool:
    return set(await bodies(member)) == expected


async def send_until(
    members: list[RealMember], stop: trio.Event, acknowledged: set[bytes], dice: random.Random
) -> None:
    """Send to whoever takes messages; note those that were acknowledged."""
    while not stop.is_set():
        for member in members:
            try:
                async with open_channel("127.0.0.1", member.broker_port) as channel:
                    while not stop.is_set():
                        number = len(acknowledged)
                        body = b"%d/%d " % (number, dice.getrandbits(40)) + dice.randbytes(
                            dice.choice([10, 900, 40_000])
                        )
                        answer = await channel.ask(send("T", body, queue_id=number % QUEUES), 5)
                        if answer.code:
                            break
                        acknowledged.add(body)
            except* LOST:
                pass
        await trio.sleep(0.05)


async def kill_rounds(folder: Path, seed: int, rounds: int) -> None:
    """Kill either member again and again while messages come; then destroy one disk and look at the other."""
    dice, acknowledged, stop = random.Random(seed), set[bytes](), trio.Event()
    a, b = pair_of(folder)
    try:
        await led(a, b)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_until, [a, b], stop, acknowledged, dice)
            for _ in range(rounds):
                before = len(acknowledged)
                await until(lambda before=before: len(acknowledged) > before + 5)  # type: ignore[misc]
                await trio.sleep(dice.uniform(0, 0.5))
                victim = dice.choice([a, b])
                await trio.to_thread.run_sync(victim.kill)
                await trio.sleep(dice.uniform(0, 0.5))
                await start(victim)
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 20)
            stop.set()
        await until(lambda: log_files(a) == log_files(b))
        lost, kept = dice.sample([a, b], 2)
        for member in (a, b):
            await trio.to_thread.run_sync(member.kill)
        await trio.to_thread.run_sync(shutil.rmtree, lost.data)
        await start(kept)
        await kept.ask("group.promote", accept_loss=True)
        await wait_for(kept, serves=True)
        missing = acknowledged - set(await bodies(kept))
        assert not missing, f"seed {seed}: {len(missing)} of {len(acknowledged)} acknowledged messages are gone"
    finally:
        for member in (a, b):
            if member.running:
                member.kill()


async def test_kills_of_either_side_lose_no_acknowledged_message_when_a_disk_is_destroyed_afterwards(
    tmp_path: Path,
) -> None:
    await kill_rounds(tmp_path, seed=1, rounds=4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 35))
async def test_many_kills_lose_no_acknowledged_message(tmp_path: Path, seed: int) -> None:
    await kill_rounds(tmp_path, seed, rounds=8)
