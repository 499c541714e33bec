import json
import os
import subprocess
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from appliance.health.conditions import Condition, worst
from appliance.health.health import DiskUsage, HealthBoard, Release
from appliance.health.health_file import describe, read_health
from watchdog.history import BootNote
from watchdog.proof import ProofVerdict, Reason

NOTE = BootNote(41, "id", "power", "a", "1.4.0", False, 0.0)
UPLINK = Condition("uplink_late", "no receipt for 2.2 h, 412 MiB waiting", "run `rocketbox doctor`")


def board(path: Path, found: list[Condition] | None = None) -> HealthBoard:
    return HealthBoard(
        path,
        lambda: Release("1.4.0", "a", True),
        NOTE,
        sources=(lambda: found or [],),
        disk=lambda: DiskUsage(0.41, 310.2),
        clock_trusted=lambda: True,
        rate=lambda: 214.2,
        ports={"namesrv": 9876, "broker": 10911},
    )


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], "ok"),
        (["ok", "degraded"], "degraded"),
        (["failing", "degraded"], "failing"),
        (["read_only", "failing"], "read_only"),
        (["starting"], "starting"),
    ],
)
def test_the_worst_state_wins(states: list[str], expected: str) -> None:
    assert worst(states) == expected


def test_a_health_file_that_cannot_be_written_is_said_once_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = board(tmp_path / "file" / "health.json")
    (tmp_path / "file").write_text("in the way")
    one.write()
    one.write()
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=health_not_written"]
    (tmp_path / "file").unlink()
    one.write()
    assert read_health(tmp_path / "file" / "health.json")["version"] == "1.4.0"


def test_a_pipe_where_the_health_file_is_made_holds_nobody_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "health.json.new")
    board(tmp_path / "health.json").write()
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=health_not_written"]


@pytest.mark.parametrize(
    ("leads_to", "step"),
    [
        ("/dev/full", "free_space_there"),
        (".", "remove_what_is_in_its_place"),
        ("health.json.new", "check_the_folder"),  # a link to itself
    ],
)
def test_the_next_step_for_an_unwritten_health_file_is_that_of_its_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leads_to: str, step: str
) -> None:
    (tmp_path / "health.json.new").symlink_to(leads_to)
    board(tmp_path / "health.json").write()
    assert [record.getMessage().partition("next_step=")[2] for record in caplog.records] == [step]


async def test_what_goes_wrong_is_logged_when_it_begins_and_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    found = [UPLINK]
    one = board(tmp_path / "health.json", found)
    starving = ProofVerdict(False, "failing", (Reason("D502", "no request was answered", "wait"),))
    with caplog.at_level("INFO"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            await trio.sleep(25)
            found.clear()
            one.observe(starving)  # the watchdog tells this itself
            await trio.sleep(15)
            nursery.cancel_scope.cancel()
    assert [record.getMessage().partition(" text")[0] for record in caplog.records] == [
        "event=degraded code=D310 condition=uplink_late",
        "event=over condition=uplink_late",
    ]


async def test_a_condition_that_is_muted_is_not_told_to_be_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    muted = list[Condition]()
    one = HealthBoard(
        tmp_path / "health.json",
        lambda: Release("1.4.0", "a", True),
        NOTE,
        sources=(lambda: [UPLINK],),
        split=lambda found: ([each for each in found if each not in muted], list(muted)),
    )
    with caplog.at_level("INFO"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            await trio.sleep(40)
            muted.append(UPLINK)
            await trio.sleep(15)
            nursery.cancel_scope.cancel()
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=degraded", "event=muted"]


async def test_a_change_that_people_are_to_hear_of_is_written_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    found, changed = list[Condition](), trio.Event()
    one = board(tmp_path / "health.json", found)

    async def wait_change() -> None:
        await changed.wait()
        if found:
            await trio.sleep_forever()
        found.append(UPLINK)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run, wait_change)
        await trio.sleep(1)
        changed.set()
        await trio.sleep(0.1)
        assert [each["code"] for each in json.loads((tmp_path / "health.json").read_text())["reasons"]] == ["D310"]
        nursery.cancel_scope.cancel()


async def test_what_one_board_told_the_next_one_knows_and_tells_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    lasts = [UPLINK, Condition("no_quorum", "no leader for 12 s: sends are refused", "start the others")]
    said = set[str]()

    async def of_one_standing(found: list[Condition], later: list[Condition], *, seconds: float) -> None:
        seen = list[Condition]()
        one = HealthBoard(
            tmp_path / "health.json",
            lambda: Release("1.4.0", "a", True),
            NOTE,
            sources=(lambda: seen,),
            said=said,
        )
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.run)
                seen += found
                await trio.sleep(15)  # conditions that last are found at a later look
                seen += later
                await trio.sleep_forever()

    with caplog.at_level("INFO"):
        await of_one_standing(lasts, [], seconds=20)
        await of_one_standing([], [UPLINK], seconds=60)
    assert [record.getMessage().partition(" text")[0].partition("condition=")[2] for record in caplog.records] == [
        "uplink_late",
        "no_quorum",
        "no_quorum",
    ]
    assert caplog.records[-1].getMessage() == "event=over condition=no_quorum"


def test_the_object_has_what_a_technician_asks_for(tmp_path: Path) -> None:
    one = board(tmp_path / "health.json", [UPLINK])
    one.observe(ProofVerdict(True, "ok", ages_s={"durable": 1.23, "accepted": 3.9}))
    one.opened("grpc", 8081)
    assert one.snapshot() == {
        "state": "degraded",
        "since_s": 0,
        "version": "1.4.0",
        "pure": "",
        "slot": "a",
        "committed": True,
        "ports": {"namesrv": 9876, "broker": 10911, "grpc": 8081},
        "boot": 41,
        "reset_reason": "power",
        "reasons": [
            {"id": "uplink_late", "state": "degraded", "code": "D310", "text": UPLINK.text, "next": UPLINK.next}
        ],
        "muted": [],
        "proof": {"durable_age_s": 1.2, "accepted_age_s": 3.9},
        "disk": {"used": 0.41, "full_in_h": 310},
        "clock_trusted": True,
    }


def test_before_the_first_verdict_the_box_is_starting(tmp_path: Path) -> None:
    assert board(tmp_path / "x").snapshot()["state"] == "starting"


def test_the_status_line_says_it_in_120_bytes(tmp_path: Path) -> None:
    one = board(tmp_path / "x")
    one.observe(ProofVerdict(True, "ok"))
    assert one.status_line() == "ok, 214 msg/s, disk 41 %, slot a 1.4.0"
    long = board(tmp_path / "x", [Condition("uplink_late", "ü" * 200, "n")])
    assert len(long.status_line().encode()) <= 120


async def test_a_change_of_state_is_in_the_file_at_once_and_the_rest_every_ten_seconds(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "run" / "health.json"
    found: list[Condition] = []
    one = board(path, found)
    one.observe(ProofVerdict(True, "ok"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.sleep(1)
        assert json.loads(path.read_text())["state"] == "ok"
        one.observe(ProofVerdict(False, "failing", (Reason("D501", "t", "n"),)))
        await trio.sleep(0.1)
        assert json.loads(path.read_text())["state"] == "failing"
        assert path.stat().st_mode & 0o777 == 0o644
        nursery.cancel_scope.cancel()


def test_a_process_that_has_ended_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    gone = subprocess.Popen(["true"])
    gone.wait()
    path.write_text(json.dumps({"state": "ok", "pid": gone.pid}))
    found = read_health(path)
    assert (found["state"], found["reasons"][0]["text"]) == ("failing", "the box has stopped")
    board(path).write()
    assert read_health(path)["state"] == "starting"
    for odd in (0, -1, 10**30, "x", None, True):
        path.write_text(json.dumps({"state": "ok", "pid": odd}))
        assert read_health(path)["state"] == "ok"


def test_the_first_boot_has_no_cause() -> None:
    known = {"state": "ok", "version": "1.4.0", "reset_reason": "power"}
    assert "Boot      1, the first that is on record" in describe({**known, "boot": 1}).splitlines()
    assert "Boot      2, because of power" in describe({**known, "boot": 2}).splitlines()


def test_a_person_reads_state_cause_and_next_step(tmp_path: Path) -> None:
    one = board(tmp_path / "x", [UPLINK])
    one.observe(ProofVerdict(True, "ok"))
    text = describe(one.snapshot())
    for part in (
        "State     degraded",
        "1.4.0 in slot a",
        "because of power",
        "namesrv 9876, broker 10911",
        "41% used, full in 310 h",
        "D310",
        "next:",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("code", "id"),
    [
        ("D501", "not_durable"),
        ("D502", "not_answering"),
        ("D503", "loop_late"),
        ("D504", "memory_short"),
        ("D505", "files_short"),
    ],
)
def test_what_the_watchdog_finds_is_a_condition(tmp_path: Path, code: str, id: str) -> None:
    one = board(tmp_path / "x")
    one.observe(ProofVerdict(False, "failing", (Reason(code, "why", "what next"),)))
    (found,) = one.snapshot()["reasons"]
    assert (found["id"], found["code"], found["text"]) == (id, code, "why")


def test_a_muted_condition_is_listed_and_degrades_nothing(tmp_path: Path) -> None:
    one = HealthBoard(
        tmp_path / "x",
        lambda: Release("1", "a", True),
        NOTE,
        sources=(lambda: [UPLINK],),
        split=lambda found: ([], list(found)),
    )
    one.observe(ProofVerdict(True, "ok"))
    seen = one.snapshot()
    assert (seen["state"], seen["reasons"], seen["muted"][0]["id"]) == ("ok", [], "uplink_late")


def test_the_state_has_a_line_for_the_uplink_and_for_what_is_muted() -> None:
    line = {"gateway": "centre:7700", "connected": False, "paused": False, "unshipped_bytes": 3 << 20, "gaps": 2}
    muted = [{"id": "disk_filling", "text": "disk 87% full"}]
    text = describe({"state": "ok", "uplink": {**line, "last_error": "refused"}, "muted": muted})
    assert (
        "Uplink    not connected to centre:7700 (refused), 3 MiB unshipped, no receipt since the start, 2 gaps" in text
    )
    assert "muted disk_filling: disk 87% full" in text
