import json
import logging
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from appliance import supervision
from appliance.__main__ import main
from appliance.configuration.config import HostFacts, load_config
from appliance.configuration.parts import store_config
from appliance.device.probe import Probe
from appliance.opening import tell_unreadable
from appliance.supervision import DiskTrend, RestartLoop, Supervision, conditions_of_store, end_failed, running_release
from provisioning.slots import Slots, SlotState
from storage_driver.errors import LogFailed
from storage_driver.record import encode_host
from storage_driver.recovery.losses import Loss
from storage_driver.store import open_store
from tests.protection import protected
from watchdog.helper import main as helper
from watchdog.history import Diary
from watchdog.notes import append_line

ROOT = Path(__file__).parents[2]
CONFIG = load_config("", source="test", facts=HostFacts(1 << 40, "", "box"))


def begin(data: Path, **environ: str) -> Supervision:
    return Supervision.begin(CONFIG, data, None, environ)


def test_a_start_notes_the_boot_and_makes_the_runtime_folder(tmp_path: Path) -> None:
    one = begin(tmp_path / "data")
    assert one.note.number == 1
    assert one.runtime == tmp_path / "data/run"
    assert begin(tmp_path / "data", RUNTIME_DIRECTORY=str(tmp_path / "run")).runtime == tmp_path / "run"


def test_a_start_finds_its_folders_whatever_stands_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no folder")
    (tmp_path / "watchdog/boots.jsonl").mkdir(parents=True)
    assert begin(tmp_path).note.number == 1
    assert (tmp_path / "run").is_dir()


@pytest.mark.parametrize("name", ["watchdog", "watchdog/boots.jsonl"])
def test_a_start_whose_notes_are_protected_keeps_them_in_the_runtime_folder_and_says_so(
    tmp_path: Path, name: str
) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    assert begin(data)._own_conditions() == []
    (data / "watchdog/boots.jsonl").write_text('{"number": 7, "boot": "the one before"}\n')
    with protected(data / name):
        started = begin(data, RUNTIME_DIRECTORY=str(run))
        assert started.diary.folder == run / "watchdog"
        (found,) = started._own_conditions()
        assert found.id == "notes_unsaved"
        assert f"{data}/watchdog/boots.jsonl" in found.text
        assert "chattr -i" in found.next
    assert begin(data, RUNTIME_DIRECTORY=str(run)).note.number == 8


async def test_a_table_that_cannot_be_saved_is_a_reason_with_the_next_step(tmp_path: Path) -> None:
    config = store_config(CONFIG, tmp_path, encode_host("127.0.0.1", 10911))
    async with open_store(config, now_ms=lambda: 1) as store:
        table = store.state_file("topics")
        await table.write({})
        with protected(tmp_path / "store/config/topics.json"), suppress(OSError):
            await table.write({"changed": True})
        if os.geteuid():
            return  # another user's mode keeps nobody from replacing a file
        (found,) = conditions_of_store(store)
        assert found.id == "tables_unsaved"
        assert "config/topics.json: Operation not permitted" in found.text


async def test_what_a_log_lost_is_a_reason_until_somebody_has_acknowledged_it(tmp_path: Path) -> None:
    config = store_config(CONFIG, tmp_path, encode_host("127.0.0.1", 10911))
    async with open_store(config, now_ms=lambda: 1) as store:
        store.losses.note(Loss(1, 1, [(400, 900)], ["cut"], {"the index": 900}, 39_000, [("T", 3, 39_000)]))
        (found,) = conditions_of_store(store)
        assert found.id == "data_lost"
        assert "lost at least 39000 messages (T/3: 39000), log offsets 400 to 900" in found.text
        store.losses.acknowledge(1)
        assert conditions_of_store(store) == []


def test_under_systemd_the_eleventh_start_within_the_hour_leaves_it_to_the_escalation(tmp_path: Path) -> None:
    begin(tmp_path)
    exits = tmp_path / "watchdog/exits.jsonl"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    up = float(Path("/proc/uptime").read_text().split()[0])
    row = {"boot": boot, "uptime_s": up - 1, "result": "signal", "code": "killed", "status": "KILL"}
    exits.write_text("".join(json.dumps(row) + "\n" for _ in range(10)))
    begin(tmp_path)  # by hand: as often as one likes
    with pytest.raises(RestartLoop):
        begin(tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify"))


async def test_a_process_ends_once_its_failed_disk_has_proven_nothing_for_long(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    config = store_config(CONFIG, tmp_path, encode_host("127.0.0.1", 10911))
    async with open_store(config, now_ms=lambda: 1) as store:
        with trio.move_on_after(60):
            await end_failed(store, 0.0)
            pytest.fail("the disk works")
        store.seal("sync at 17: Input/output error")
        with trio.move_on_after(60):
            await end_failed(store, 3600.0)
            pytest.fail("the newest proof is not old enough")
        with pytest.raises(LogFailed, match="restart to recover: sync at 17"):
            await end_failed(store, 0.0)


@pytest.mark.slow
def test_without_a_watchdog_serve_ends_with_74_when_its_disk_fails_so_that_whatever_runs_it_starts_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def failed(*_: object) -> None:
        raise LogFailed("sync at 17: Input/output error")

    monkeypatch.setattr(supervision, "end_failed", failed)
    for name in ("WATCHDOG_USEC", "NOTIFY_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    assert main(["serve", "--data", str(tmp_path / "data"), *ports]) == 74
    logging.shutdown()  # as the end of the process: the last words are a thread's
    assert "the log is sealed after a disk error, restart to recover: sync at 17" in capfd.readouterr().err


def test_the_trend_tells_share_and_forecast(tmp_path: Path) -> None:
    trend = DiskTrend(lambda: None, tmp_path)
    seen = trend.now()
    assert 0 < seen.used < 1
    assert seen.full_in_h is None
    used, used_bytes, full_in_h = trend.space()
    assert 0 < used < 1
    assert used_bytes > 0
    assert full_in_h is None


def test_outside_a_slot_the_package_tells_its_version(tmp_path: Path) -> None:
    assert running_release(tmp_path).slot == "-"


def test_a_slot_that_is_a_link_into_the_image_is_told_by_its_name(tmp_path: Path) -> None:
    slots = Slots(tmp_path)
    (tmp_path / "slots").mkdir()
    (tmp_path / "slots/a").symlink_to(ROOT)  # as if this package lay in the image
    slots.save(SlotState(versions={"a": "1.4.0"}))
    slots.point_at("a")
    found = running_release(tmp_path)
    assert (found.version, found.slot, found.committed) == ("1.4.0", "a", True)


async def test_a_port_nobody_listens_on_is_no_proof() -> None:
    assert not await Probe("127.0.0.1", 1, 1)()


class Served:
    """A real `serve` with an ear where systemd would be."""

    def __init__(self, data: Path, **environ: str) -> None:
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ear.bind(str(data / "notify"))
        self.ear.settimeout(20)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "appliance",
                "serve",
                "--data",
                str(data),
                "--broker-port",
                "0",
                "--namesrv-port",
                "0",
            ],
            env={**os.environ, "NOTIFY_SOCKET": str(data / "notify"), **environ},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, word: str) -> list[str]:
        heard: list[str] = []
        while not any(word in one for one in heard):
            heard.append(self.ear.recv(4096).decode().strip())
        return heard


@pytest.mark.slow
def test_the_product_is_ready_when_both_ports_answer_is_fed_and_says_goodbye(tmp_path: Path) -> None:
    served = Served(tmp_path, WATCHDOG_USEC="30000000")
    heard = served.wait_for("READY=1")
    assert any("EXTEND_TIMEOUT_USEC" in one for one in heard)
    assert heard.index("WATCHDOG=1") < heard.index("READY=1")  # proven first
    served.wait_for("STATUS=ok")
    line = served.process.stdout.readline() if served.process.stdout else ""
    assert line.startswith("ready ")
    assert json.loads((tmp_path / "run/health.json").read_text())["state"] == "ok"
    served.process.send_signal(signal.SIGTERM)
    served.wait_for("STOPPING=1")
    assert served.process.wait(6) == 0
    assert json.loads((tmp_path / "watchdog/planned").read_text())["who"] == "systemd"


@pytest.mark.slow
def test_a_killed_product_names_its_end_at_the_next_start(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.wait_for("READY=1")
    served.process.kill()
    served.process.wait()
    (tmp_path / "box/var/lib").mkdir(parents=True)
    (tmp_path / "box/var/lib/rocketbox").symlink_to(tmp_path)
    (tmp_path / "box/proc").symlink_to("/proc")
    killed = {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}
    assert helper(["record", "--root", str(tmp_path / "box")], killed) == 0
    assert Diary(tmp_path / "watchdog").previous_exit() == "signal KILL"


@pytest.mark.slow
def test_a_proof_limit_that_does_not_fit_the_unit_is_exit_78(tmp_path: Path) -> None:
    served = Served(tmp_path, WATCHDOG_USEC="3000000")
    assert served.process.wait(60) == 78
    assert "proof_limit_s" in (served.process.stderr.read() if served.process.stderr else "")


def test_a_verdict_knows_its_boot_which_start_it_was_and_how_the_last_one_ended(tmp_path: Path) -> None:
    first = begin(tmp_path)
    assert first.start_facts() | {"clock_trusted": None} == {
        "clock_trusted": None,
        "boot": 1,
        "attempt": 1,
        "previous_exit": "power",
    }
    row = {"boot": first.note.boot, "uptime_s": 12.5, "result": "signal", "code": "killed", "status": "KILL"}
    append_line(tmp_path / "watchdog/exits.jsonl", row)
    again = begin(tmp_path).start_facts()
    assert (again["boot"], again["attempt"], again["previous_exit"]) == (1, 2, "signal KILL")


def test_the_facts_of_the_start_stand_in_the_verdict_file(tmp_path: Path) -> None:
    facts = {"boot": 41, "attempt": 2, "previous_exit": "signal KILL", "clock_trusted": False}
    config = store_config(CONFIG, tmp_path, encode_host("127.0.0.1", 10911), facts)

    async def open_twice() -> None:
        for _ in range(2):  # a folder just made leaves no verdict
            async with open_store(config, now_ms=lambda: 1_700_000_000_000):
                pass

    trio.run(open_twice)
    (path,) = (tmp_path / "verdicts").glob("*.json")
    found = json.loads(path.read_text())
    assert found.items() >= facts.items()
    assert found["verdict"] == "clean"


def test_systemd_is_told_how_far_the_recovery_is(tmp_path: Path) -> None:
    supervision = begin(tmp_path)
    assert supervision.recovery_line() == "recovering"
    supervision.recovering(153 << 20, 412 << 20)
    assert supervision.recovery_line() == "recovering 37 % of 412 MiB"
    tell_unreadable(supervision, 300)
    assert supervision.recovery_line() == "recovering 37 % of 412 MiB, the disk does not give back 300 blocks of 4 KiB"


async def test_what_is_to_be_done_before_a_wanted_stop_is_done_and_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FAREWELL_S", 0.01)
    began, done = begin(tmp_path), list[str]()

    async def says() -> None:
        await trio.lowlevel.checkpoint()
        done.append("said")

    began.farewells.extend((says, trio.sleep_forever, says))
    await began.stopping()
    assert done == ["said"]
