"""A leader whose disk is full hands over where that helps, to a box that takes records, and not again and again."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from appliance import admin
from appliance.group.copies.full_disk import LASTS_S, PAUSE_S, BoxesSeen, FullDisk
from netstack.serving.channel import open_channel
from storage_driver.consensus.rules import Acknowledge, Rules
from storage_driver.errors import Full
from storage_driver.files.disk import RealFile
from tests.appliance.box import send
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.members import RunningMember, group
from tests.appliance.group.preferred import led_until_it_comes, prefer_after
from tests.appliance.group.real_group import RealMember, start, wait_for
from tests.appliance.group.test_elections import AUTOMATIC, led
from tests.appliance.real_box import ALLOWED, NO_MOUNTS, OWN, SMALL_DISK
from tests.waiting import until, until_it

pytestmark = pytest.mark.pure
THREE = BoxesSeen({"b": 100, "c": 90}, boxes=3, witnesses=0, voters=3)


def asked(full: FullDisk, seen: BoxesSeen, *times_s: float) -> list[str]:
    return [full.successor(now_s, seen) for now_s in times_s]


def test_the_box_that_has_most_takes_over_once_the_disk_stays_full() -> None:
    assert asked(FullDisk(Rules()), THREE, 100, 101, 100 + LASTS_S) == ["", "", "b"]
    full = FullDisk(Rules(scale=2))
    assert asked(full, THREE, 100, 100 + LASTS_S) == ["", ""]
    full.has_room()
    assert asked(full, THREE, 100 + 2 * LASTS_S) == [""]


def test_a_box_that_has_just_come_or_was_full_meanwhile_does_not_take_over() -> None:
    full, without_b = FullDisk(Rules(copies=1)), THREE._replace(fit={"c": 90})
    assert asked(full, without_b, 0) == asked(FullDisk(Rules(copies=1)), THREE, 0) == [""]
    assert asked(full, THREE._replace(fit={"b": 100}), 1, 2) == ["", ""]


def test_it_happens_once_a_minute_at_most_and_then_to_another_box() -> None:
    full = FullDisk(Rules())
    assert asked(full, THREE, 0, LASTS_S, LASTS_S + PAUSE_S - 1, LASTS_S + PAUSE_S) == ["", "b", "", "c"]
    assert asked(full, THREE, LASTS_S + 2 * PAUSE_S) == ["b"]


PAIR = BoxesSeen({"b": 100}, boxes=2, witnesses=1, voters=3)


@pytest.mark.parametrize(
    ("seen", "rules", "helps"),
    [
        (THREE, Rules(), True),
        (THREE._replace(fit={"b": 100}), Rules(), False),  # two copies are wanted, and one disk has room
        (THREE._replace(fit={"b": 100}), Rules(acknowledge="one"), True),
        (THREE._replace(fit={}), Rules(acknowledge="one"), False),
        (THREE, Rules(elections="manual"), False),
        (PAIR, Rules(), False),
        (PAIR, Rules(copies=1), True),
        (PAIR._replace(witnesses=0), Rules(copies=1), False),
    ],
)
def test_it_happens_only_where_messages_are_acknowledged_then(seen: BoxesSeen, rules: Rules, helps: bool) -> None:
    assert asked(FullDisk(rules), seen, 0, LASTS_S) == ["", "b" if helps else ""]


async def stays_full(member: RunningMember) -> None:
    """The store looks at its disk every ten seconds, and that has room."""
    while True:
        member.store.full = "97 % used"
        await trio.sleep(0.01)


@contextmanager
def stalled(monkeypatch: pytest.MonkeyPatch, but: Path) -> Iterator[None]:
    """Let no sync of a segment end but those below one folder."""
    sync, ended = RealFile.sync, threading.Event()

    def wait(file: RealFile, *, in_place: bool = False) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{file._fd}"))
        if path.parent.name == "commitlog" and not path.is_relative_to(but):
            ended.wait()
        sync(file, in_place=in_place)

    monkeypatch.setattr(RealFile, "sync", wait)
    try:
        yield
    finally:
        ended.set()


@pytest.mark.slow
@needs_openssl
async def test_senders_go_on_at_another_box_and_the_preferred_one_leads_again_only_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer_after(monkeypatch, 0.1)
    async with group(tmp_path, "a", "b", "c", rules=AUTOMATIC._replace(preferred="a")) as made:
        a, b, c = await made.start("a", "b", "c")
        await until(a.leads)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays_full, a)
            await until(lambda: b.leads() or c.leads())
            name, leader = await led(made)
            await leader.put_committed(b"goes on")
            term = leader.driver.leadership.current.term
            await until(lambda: leader.driver._copy.news.refusals.of("a").startswith("has no space"))
            await trio.sleep(1)
            assert (leader.leads(), leader.driver.leadership.current.term) == (True, term), f"{name} leads on"
            nursery.cancel_scope.cancel()
        a.store.full = None
        await until(a.leads)
        assert await a.bodies() == [b"goes on"]


@pytest.mark.slow
@needs_openssl
async def test_a_leader_stays_where_the_others_are_full_as_well(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", "c", rules=AUTOMATIC) as made:
        members = await made.start("a", "b", "c")
        name, leader = await led(made)
        term = leader.driver.leadership.current.term
        fit = next(each for each in members if each is not leader)
        async with trio.open_nursery() as nursery:
            for each in members:
                if each is not fit:
                    nursery.start_soon(stays_full, each)
            await trio.sleep(LASTS_S)  # twice what it takes, with these times
            assert (leader.driver.leadership.current.leader, leader.driver.leadership.current.term) == (name, term)
            nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.soak
@needs_openssl
async def test_a_leader_with_a_full_disk_stays_where_the_others_do_not_take_what_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, "a", "b", "c", rules=AUTOMATIC) as made:
        await made.start("a", "b", "c")
        name, leader = await led(made)
        await until(lambda: leader.driver.view.copies().there == 3)
        with stalled(monkeypatch, tmp_path / name):
            leader.put(b"nobody else syncs it")
            await until(lambda: leader.driver.view.copies().there == 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stays_full, leader)
                with trio.move_on_after(LASTS_S):  # twice what it takes, with these times
                    await until(lambda: not leader.leads())
                    raise AssertionError("it hands over to a box whose disk stalls")
                nursery.cancel_scope.cancel()


@pytest.mark.slow
@needs_openssl
async def test_a_full_box_that_has_everything_is_not_given_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with led_until_it_comes(tmp_path, monkeypatch, "a") as (leader, a):
        name = leader.driver.member
        await until(lambda: all(each.synced == leader.store.end for each in leader.driver.view.members()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays_full, a)
            await until(lambda: leader.driver._copy.news.refusals.of("a"))
            prefer_after(monkeypatch, 0.1)
            await trio.sleep(1)
            assert leader.driver.leadership.current.leader == name, "it is preferred, and has no room"
            assert await leader.driver.orders.hand_over() == ({"b", "c"} - {name}).pop()
            nursery.cancel_scope.cancel()


@pytest.mark.slow
@needs_openssl
@pytest.mark.parametrize(
    ("acknowledge", "level", "full_leads"),
    [
        ("one", True, False),
        ("one", False, True),  # the other lacks what was acknowledged
        ("both", True, True),  # of two disks one has no room: the first record of the other one would not be committed
    ],
)
async def test_after_a_kill_a_full_box_leads_only_where_no_other_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acknowledge: Acknowledge, level: bool, full_leads: bool
) -> None:
    prefer_after(monkeypatch, 1e9)  # it would be elected first, and is not handed the lead
    rules = AUTOMATIC._replace(preferred="a", acknowledge=acknowledge)
    async with group(tmp_path, "a", "b", "c", rules=rules) as made:
        await made.start("b", "c")
        name, leader = await led(made)
        [a], other = await made.start("a"), ({"b", "c"} - {name}).pop()
        await until(lambda: leader.driver.view.copies().there == 3)
        await until(lambda: not any(each.driver._core._state.hard.filling for each in made.running.values()))
        if not level:
            await made.stop(other)
        await leader.put_committed(b"before")
        await until(lambda: a.store.committed == leader.store.committed)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays_full, a)
            await until(lambda: leader.driver._copy.news.refusals.of("a"))
            await made.stop(name)
            if not level:
                await made.start(other)
            await until(lambda: any(each.leads() for each in made.running.values()))
            assert (a.leads(), made.running[other].leads()) == (full_leads, not full_leads)
            if full_leads:
                with pytest.raises(Full, match="97 % used"):
                    a.put(b"refused")
            nursery.cancel_scope.cancel()


class SmallDiskMember(RealMember):
    """A member on a file system of its own."""

    ROOM = 256 << 20

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        words = [*OWN, "sh", "-c", SMALL_DISK, str(self.ROOM), str(data), sys.executable, *self.command]
        self.command = ["-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", *words]

    async def ask(self, do: str, **values: object) -> object:
        path = Path(f"/proc/{self.pid}/root{self.data}") / "run" / admin.NAME
        return await trio.to_thread.run_sync(lambda: admin.ask(path, do, values, timeout_s=30))

    def fill(self) -> None:
        """Take all room but for what a store needs to go on with what it has begun."""
        with open(f"/proc/{self.pid}/root{self.data}/filler", "wb") as file:
            system = os.fstatvfs(file.fileno())
            os.posix_fallocate(file.fileno(), 0, system.f_bavail * system.f_bsize - (24 << 20))


async def sent(box: RealMember, body: bytes) -> int:
    """Send a message to a box, return the code of the answer."""
    async with open_channel("127.0.0.1", box.broker_port) as channel:
        return int((await channel.ask(send("T", body), 30)).code)


async def only_leader(boxes: Sequence[SmallDiskMember]) -> SmallDiskMember:
    """Return which box takes messages, once there is one."""
    leading: list[SmallDiskMember] = []

    async def led() -> bool:
        leading[:] = [each for each in boxes if each.running and await each.serves()]
        return len(leading) == 1

    await until_it(led)
    return leading[0]


@pytest.mark.slow
@pytest.mark.soak
@needs_openssl
@pytest.mark.skipif(not ALLOWED, reason=NO_MOUNTS)
async def test_a_box_with_a_really_full_disk_is_not_elected_after_a_kill(tmp_path: Path) -> None:
    boxes = [SmallDiskMember(tmp_path / name) for name in "abc"]
    for each in boxes:
        each.configure(boxes, "preferred = 'a'\nacknowledge = 'one'\n", elections="automatic")
    a = boxes[0]
    try:
        await start(*boxes[1:])
        leader = await only_leader(boxes[1:])
        await start(a)
        await wait_for(leader, copies_there=3)
        assert await sent(leader, b"before") == 0
        a.fill()

        async def knows() -> bool:
            return any(each["refuses"] for each in (await leader.status())["members"])

        await until_it(knows)
        leader.kill()
        other = await only_leader(boxes)
        assert other is not a
        assert await sent(other, b"after") == 0
    finally:
        for each in boxes:
            if each.running:
                each.kill()


@pytest.mark.slow
@pytest.mark.soak
@needs_openssl
@pytest.mark.skipif(not ALLOWED, reason=NO_MOUNTS)
async def test_with_a_really_full_disk_a_sender_that_asks_any_box_goes_on(tmp_path: Path) -> None:
    boxes = [SmallDiskMember(tmp_path / name) for name in "abc"]
    for each in boxes:
        each.configure(boxes, elections="automatic")

    try:
        await start(*boxes)
        leader = await only_leader(boxes)
        assert await sent(leader, b"before") == 0
        leader.fill()

        async def another_leads() -> bool:
            return await only_leader(boxes) is not leader

        await until_it(another_leads)
        for box in boxes:
            assert await sent(box, b"after " + box.name.encode()) == 0, "a follower hands it on"
    finally:
        for each in boxes:
            if each.running:
                each.kill()
