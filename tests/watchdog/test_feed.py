import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from watchdog.errors import SettingIllegal
from watchdog.feed import Feeder, WatchdogConfig, Wiring
from watchdog.history import Diary
from watchdog.notes import read_json, read_lines
from watchdog.notify import Notifier
from watchdog.proof import ProofVerdict, Success
from watchdog.testing import box_root
from watchdog.vitals import ProcessVitals


class Box:
    """One feeder with a disk, ports and memory the test can break; `heard` is what systemd was told."""

    def __init__(self, tmp_path: Path, *, watchdog_s: float = 30.0) -> None:
        self.root = box_root(tmp_path)
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._ear.bind(str(tmp_path / "notify"))
        self.disk_works = self.ports_answer = True
        self.memory = 100
        self.verdicts: list[ProofVerdict] = []
        self.refusing = False
        self._synced_s = 0.0
        diary = Diary(self.root / "var/lib/rocketbox/watchdog", root=self.root)
        diary.begin(now_s=0, trusted=False)
        wiring = Wiring(
            durable=self._durable,
            probe=self._probe,
            read_vitals=lambda: ProcessVitals(self.memory, 1000, 10, 1000),
            observe=self.verdicts.append,
            refuse=self._refuse,
            status=lambda: "ok",
        )
        self.feeder = Feeder(
            Notifier(str(tmp_path / "notify"), watchdog_s=watchdog_s),
            WatchdogConfig(boot="boot-1", config_crc32=7),
            wiring,
            diary,
            now_s=trio.current_time,
        )

    def _durable(self) -> Success:
        if self.disk_works:
            self._synced_s = trio.current_time()
        return Success(self._synced_s, 0.001)

    async def _probe(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self.ports_answer

    def _refuse(self, refuse: bool) -> None:
        self.refusing = refuse

    def heard(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self._ear.recv(4096).decode().strip())
            except BlockingIOError:
                return found

    def note(self, name: str) -> Path:
        return self.root / "var/lib/rocketbox/watchdog" / name


async def running(box: Box, during: Callable[[], object]) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(box.feeder.run)
        await during()  # type: ignore[misc]
        nursery.cancel_scope.cancel()


async def test_ready_leaves_only_after_both_ports_have_answered(tmp_path: Path, autojump_clock: MockClock) -> None:
    box = Box(tmp_path)
    box.ports_answer = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.feeder.run)
        await trio.sleep(3)
        assert "READY=1" not in box.heard()
        box.ports_answer = True
        await trio.sleep(1)
        assert "READY=1" in box.heard()
        nursery.cancel_scope.cancel()


async def test_systemd_is_fed_every_sixth_of_its_limit_and_told_the_status(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    box = Box(tmp_path)

    async def during() -> None:
        box.heard()
        heard = []
        for _ in range(6):  # the queue of a Unix socket holds ten datagrams
            await trio.sleep(9.99)
            heard += box.heard()
        assert heard.count("WATCHDOG=1") == 11
        assert "STATUS=ok" in heard

    await running(box, during)


@pytest.mark.slow
async def test_a_stuck_disk_starves_the_watchdog_once_and_feeding_resumes_when_it_is_back(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    box = Box(tmp_path)

    async def during() -> None:
        box.disk_works = False
        await trio.sleep(14)
        box.heard()
        await trio.sleep(20)
        assert box.heard().count("WATCHDOG=1") <= 1
        assert box.verdicts[-1].state == "failing"
        box.disk_works = True
        await trio.sleep(6)
        assert "WATCHDOG=1" in box.heard()

    await running(box, during)
    noted = read_json(box.note("starving.json"))
    assert noted["reasons"][0]["code"] == "D501"
    assert any("_keep_looking" in stack for stack in noted["stacks"])
    assert read_json(box.note("heartbeat"))["state"] == "failing"
    assert box.feeder.statistics().starved == 1
    assert sum("starving code=D501" in record.getMessage() for record in caplog.records) == 1


async def test_ports_that_stop_answering_starve_the_watchdog(tmp_path: Path, autojump_clock: MockClock) -> None:
    box = Box(tmp_path)

    async def during() -> None:
        box.ports_answer = False
        await trio.sleep(25)
        assert [reason.code for reason in box.verdicts[-1].reasons] == ["D502"]

    await running(box, during)


async def test_scarce_memory_closes_the_door_and_starves_only_after_30_s_of_choking(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    box = Box(tmp_path)

    async def during() -> None:
        box.memory = 980
        await trio.sleep(29)
        assert (box.refusing, box.verdicts[-1].feed, box.verdicts[-1].state) == (True, True, "degraded")
        await trio.sleep(16)
        assert not box.verdicts[-1].feed
        box.memory = 500
        await trio.sleep(6)
        assert (box.refusing, box.verdicts[-1].state) == (False, "ok")

    await running(box, during)


@pytest.mark.slow
async def test_ten_healthy_minutes_settle_the_boot_and_name_the_configuration(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    box = Box(tmp_path)

    async def during() -> None:
        await trio.sleep(590)
        assert not read_lines(box.note("boots.jsonl"))[0]["settled"]
        await trio.sleep(30)

    await running(box, during)
    assert read_lines(box.note("boots.jsonl"))[0]["settled"]
    assert read_json(box.note("settled.json"))["config_crc32"] == 7
    assert read_json(box.note("heartbeat"))["state"] == "ok"


def test_a_limit_that_does_not_fit_the_units_is_refused_with_both_figures(tmp_path: Path) -> None:
    with pytest.raises(SettingIllegal, match=r"15.*20"):
        Box(tmp_path, watchdog_s=20)
