"""What an operator meets, on a real box: each trouble is told by status, doctor, metrics and page, and its alert fires.

The box is a process of its own. Rules and bounds are tried in `test_condition_rules.py` and `test_health_walks.py`.
"""

import html
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client.samples import Sample

from appliance.access import certificate
from appliance.access.certificate import make_certificate
from appliance.access.page_token import read_token
from appliance.health.conditions import KINDS
from netstack.serving.channel import open_channel
from storage_driver.log.clock import wall_ms
from storage_driver.log.segment import segment_name
from storage_driver.store import StoreConfig, open_store
from tests.appliance.alerting import NEEDED, rules_of, silent_then_firing
from tests.appliance.box import ask, heartbeat, messages_of, pull, send
from tests.appliance.page.test_changes import Client
from tests.appliance.real_box import ALLOWED, NO_MOUNTS, TOP, RealBox, environment, real_box
from tests.ports import free_port
from tests.waiting import until
from uplink_spark.testing import landed_entries
from uplink_spark.testing_site import HOST, fill

pytestmark = [pytest.mark.slow, NEEDED]
MIB, HOUR_MS = 1 << 20, 3_600_000
RULES, BOX = rules_of("alerts.yml"), "box-17"
CENTRE = [sys.executable, "-m", "uplink_spark"]
QUIET: dict[str, Any] = {"cwd": TOP, "env": environment(), "check": False, "stderr": subprocess.DEVNULL}
NO_GATEWAY = "[uplink]\ngateway = '127.0.0.1:1'\n"


async def told_everywhere(box: RealBox, key: str, sentence: str) -> list[Sample]:
    """Wait for a condition; check state and sentence wherever the box tells them; return a scrape."""
    assert re.search(sentence, await box.condition(key))
    kind = KINDS[key.partition(":")[0]]
    assert box.health["state"] == kind.state
    code, status = await box.run("status")
    assert code == 1
    assert status.startswith(f"State     {kind.state}")
    assert re.search(sentence, status)
    code, found = await box.run("doctor")
    assert code in (1, 2)
    assert re.search(rf"! {kind.code}  .*{sentence}", found)
    assert re.search(sentence, await box.page("/health.json"))
    banner = html.unescape(re.sub("<[^>]*>", "", await box.page("/now")))
    assert re.search(sentence, banner)
    seen = await box.scrape()
    told = {one.labels["id"]: one.value for one in seen if one.name == "rocketbox_condition"}
    states = {one.labels["state"]: one.value for one in seen if one.name == "rocketbox_health_state"}
    assert (told[kind.id], states[kind.state], states["ok"]) == (1, 1, 0)
    return seen


async def alerts(folder: Path, key: str, before: Sequence[Sample], after: Sequence[Sample]) -> None:
    """Check that the condition's own alert, and the one for all conditions, fire and did not before."""
    for alert in {KINDS[key].alert, "RocketboxCondition"}:
        wrong = await trio.to_thread.run_sync(silent_then_firing, folder, RULES[alert], before, after)
        assert wrong == "", wrong


async def full_disk(tmp_path: Path) -> None:
    async with real_box(tmp_path, NO_GATEWAY, disk="400m") as box:
        before = await box.scrape()
        await box.fill("orders", 1100)  # 275 MiB, of which 240 may wait
        seen = await told_everywhere(box, "data_given_up", r"dropped before the gateway had (it|them) \(quota_bytes\)")
        await alerts(tmp_path, "data_given_up", before, seen)
        filling = box.told("uplink_filling") or {}
        assert re.search(r"unshipped data, \d+ MiB, .* the limit of 240 MiB", str(filling["text"]))
        await alerts(tmp_path, "uplink_filling", before, seen)
        assert "not connected to 127.0.0.1:1" in (await box.run("status"))[1]


async def killed_consumer(tmp_path: Path) -> None:
    async with real_box(tmp_path, "[conditions]\ngroup_gone_s = 1\n") as box, trio.open_nursery() as nursery:
        before = await box.scrape()
        await box.fill("orders", 3, 100)
        words = ["consume", "orders", "--group", "billing", "--namesrv", box.namesrv, "--quiet"]
        command = [sys.executable, "-m", "appliance", *words]
        run = partial(trio.run_process, command, cwd=TOP, env=environment(), check=False)
        consumer = await nursery.start(run)
        known = box.data / "store/rocketbox/groups_seen.json"  # the box has seen its member, and knows its offsets
        await until(lambda: known.exists() and "billing" in known.read_text())
        consumer.kill()
        await box.fill("orders", 4, 100)
        sentence = r"the consumer group billing has had no member for \d+ s, up to \d messages wait for it"
        seen = await told_everywhere(box, "group_without_member:billing", sentence)
        await alerts(tmp_path, "group_without_member", before, seen)


async def stuck_consumer(tmp_path: Path) -> None:
    toml = "[conditions]\ngroup_behind_s = 1\n"
    async with real_box(tmp_path, toml) as box, open_channel("127.0.0.1", box.broker_port) as channel:
        before = await box.scrape()
        await channel.ask(heartbeat("c1", consumers={"billing": {"orders": "*"}}), timeout_s=5)
        await channel.ask(send("orders", b"1"), timeout_s=5)
        await channel.ask(send("orders", b"2"), timeout_s=5)
        await channel.ask(ask(15, consumerGroup="billing", topic="orders", queueId=0, commitOffset=1), timeout_s=5)
        sentence = r"the consumer group billing is \d+ s behind on orders, 1 messages?, and does not catch up"
        seen = await told_everywhere(box, "group_behind:billing", sentence)
        await alerts(tmp_path, "group_behind", before, seen)


async def disk_of_others(tmp_path: Path) -> None:
    """What fills the disk is not the log: the box says so, refuses sends, and serves them again afterwards."""
    async with real_box(tmp_path, disk="200m") as box:
        before = await box.scrape()
        other = box.data / "core.dump"
        other.write_bytes(bytes(150 * MIB))
        seen = await told_everywhere(box, "sends_refused", r"disk 9\d% full, sends are refused")
        await alerts(tmp_path, "sends_refused", before, seen)
        assert "`du -xh --max-depth=1` on the machine" in str((box.told("sends_refused") or {})["next"])
        other.unlink()
        await box.over("sends_refused")
        await box.fill("orders", 1)


async def dead_letters(tmp_path: Path) -> None:
    async with real_box(tmp_path) as box, open_channel("127.0.0.1", box.broker_port) as channel:
        await channel.ask(heartbeat("c1", consumers={"billing": {"orders": "*"}}), timeout_s=5)
        before = await box.scrape()
        for number in range(2):
            assert (await channel.ask(send("orders", b"pay"), timeout_s=5)).code == 0
            (message,) = messages_of(await channel.ask(pull("orders", number), timeout_s=5))
            back = ask(36, offset=message.log_offset, group="billing", delayLevel=-1, originTopic="orders")
            assert (await channel.ask(back, timeout_s=5)).code == 0
        sentence = "2 messages of the consumer group billing are dead letters"
        seen = await told_everywhere(box, "dead_letters:billing", sentence)
        await alerts(tmp_path, "dead_letters", before, seen)
        operator = Client(box.page_port, await trio.to_thread.run_sync(read_token, box.data))
        for letter in messages_of(await channel.ask(pull("%DLQ%billing"), timeout_s=5)):
            await operator.change("resend", at=letter.message_id)
        await box.over("dead_letters:billing")
        assert box.health["state"] == "ok"


async def damaged(box: RealBox) -> None:
    """Overwrite 300 bytes in five messages of the oldest file of the log, which is complete.

    In five places: the scrub, which reads 3 MiB in ten seconds, may be behind the first of them already.
    """
    await until(lambda: (box.data / "store/commitlog" / segment_name(16 * MIB)).exists())
    with (box.data / "store/commitlog" / segment_name(0)).open("r+b") as file:
        for place in (1, 4, 7, 10, 13):
            file.seek(place * MIB)
            file.write(b"\xff" * 300)


async def damage_between_runs(tmp_path: Path) -> None:
    async with real_box(tmp_path) as box:
        before = await box.scrape()
        await box.fill("orders", 80)
        await damaged(box)
    for name in ("rocketbox/position", "rocketbox/queues.json", "checkpoint"):  # without them a start reads all
        (tmp_path / "data/store" / name).unlink(missing_ok=True)
    async with real_box(tmp_path) as box:
        seen = await told_everywhere(box, "data_lost", r"lost at least [1-5] messages? \(orders/\d: \d")
        await alerts(tmp_path, "data_lost", before, seen)


async def damage_in_a_run(tmp_path: Path) -> None:
    async with real_box(tmp_path) as box:
        before = await box.scrape()
        await box.fill("orders", 80)
        await damaged(box)
        seen = await told_everywhere(box, "data_damaged:scrub", r"\d damaged ranges? in the log")
        await alerts(tmp_path, "data_damaged", before, seen)


def expired_certificate_files(cert: Path, key: Path) -> None:
    long_ago = datetime(2010, 1, 1, tzinfo=UTC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "NOT_BEFORE_THIS", long_ago)
        make_certificate(cert, key, "box", [], now=long_ago)  # for ten years


async def shipped_damage(tmp_path: Path) -> None:
    """Bytes that were damaged before they left the box: it marks them, and the centre has no row of them."""
    landing, port = tmp_path / "landing", free_port()
    toml = f"[uplink]\ngateway = '127.0.0.1:{port}'\nmax_delay_s = 1\n"
    async with real_box(tmp_path, toml) as box, trio.open_nursery() as nursery:
        before = await box.scrape()
        await box.fill("orders", 80)
        await damaged(box)
        await box.condition("data_damaged:scrub")
        where = ["--landing", str(landing), "--listen", f"127.0.0.1:{port}", "--linger-ms", "20"]
        centre = await nursery.start(partial(trio.run_process, [*CENTRE, "gateway", *where], **QUIET))
        await box.run("uplink", "ship-now")
        sentence = r"damaged.*: log offset \d+, \d+ bytes: the body of the record at \d+ does not match its CRC"
        seen = await told_everywhere(box, "data_damaged:shipped", sentence)
        await alerts(tmp_path, "data_damaged", before, seen)
        await until(lambda: sum(entry.records for entry in landed_entries(landing, BOX)) == 75)
        code, found = await at_centre("check", "--deep", "--landing", str(landing))
        assert (code, re.findall("records checked [0-9]+|marked damaged [0-9]+|; damaged [0-9]+", found)) == (
            0,
            ["records checked 75", "marked damaged 5", "; damaged 0"],
        )
        first = json.loads(next(landing.glob("status/*/*.jsonl")).read_text().splitlines()[0])  # sent at once
        assert first["state"] == "degraded"
        assert any(text.startswith("data_damaged:scrub: ") for text in first["conditions"])
        assert re.search(f"{BOX} .* damaged +bad_records", (await at_centre("gaps", "--landing", str(landing)))[1])
        centre.terminate()


async def at_centre(*words: str) -> tuple[int, str]:
    said = await trio.run_process([*CENTRE, *words], **QUIET, capture_stdout=True)
    return said.returncode, said.stdout.decode()


async def expired_certificate(tmp_path: Path) -> None:
    cert, key = tmp_path / "box.crt", tmp_path / "box.key"
    toml = f"[tls]\ncert = '{cert}'\nprivate_key = '{key}'\nmode = 'enforcing'\n"
    make_certificate(cert, key, "box", [], now=datetime.now(UTC))
    async with real_box(tmp_path, toml, clock_set=True) as box:
        before = await box.scrape()
    expired_certificate_files(cert, key)
    async with real_box(tmp_path, toml, clock_set=True) as box:
        seen = await told_everywhere(box, "certificate_ends", "the TLS certificate has expired")
        await alerts(tmp_path, "certificate_ends", before, seen)


async def clock_set_back(tmp_path: Path) -> None:
    async with real_box(tmp_path) as box:
        before = await box.scrape()
    ahead = StoreConfig(root=tmp_path / "data/store", store_host=HOST, segment_bytes=16 * MIB)
    async with open_store(ahead, now_ms=lambda: wall_ms() + 3 * HOUR_MS) as store:  # it goes three hours ahead
        await fill(store, 1)
    async with real_box(tmp_path) as box:
        seen = await told_everywhere(
            box, "clock_behind", r"the clock says \S+ \S+ UTC, 3.0 h before the newest message"
        )
        await alerts(tmp_path, "clock_behind", before, seen)


WALKS = (
    full_disk,
    disk_of_others,
    killed_consumer,
    stuck_consumer,
    dead_letters,
    damage_between_runs,
    damage_in_a_run,
    shipped_damage,
    expired_certificate,
    clock_set_back,
)
NEED_MOUNTS = () if ALLOWED else (full_disk, disk_of_others, expired_certificate)
Outcomes = dict[str, Exception | None]


@pytest.fixture(scope="module")
def outcomes(module_path: Path) -> Outcomes:
    """All walks side by side: a box looks at its conditions every ten seconds, so each of them mostly waits."""
    found: Outcomes = {}

    async def one(walk: Callable[[Path], Awaitable[None]]) -> None:
        try:
            with trio.fail_after(240):
                folder = module_path / walk.__name__
                folder.mkdir()
                await walk(folder)
        except Exception as exc:
            found[walk.__name__] = exc
        else:
            found[walk.__name__] = None

    async def all_of_them() -> None:
        async with trio.open_nursery() as nursery:
            for walk in WALKS:
                if walk not in NEED_MOUNTS:
                    nursery.start_soon(one, walk)

    trio.run(all_of_them)
    return found


@pytest.mark.parametrize("walk", [walk.__name__ for walk in WALKS])
def test_each_trouble_is_told_and_raises_its_alert(walk: str, outcomes: Outcomes) -> None:
    if walk not in outcomes:
        pytest.skip(NO_MOUNTS)
    failure = outcomes[walk]
    if failure is not None:
        raise failure
