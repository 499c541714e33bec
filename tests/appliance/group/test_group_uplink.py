"""The uplink of a pair: one log upstream, whoever leads; no gap and no double after leaders were killed."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.appliance.box import send
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import RealMember, log_files, pair_of, start, wait_for
from tests.appliance.group.test_member import asked
from tests.interop.box import Gateway
from tests.soak.site import landed
from tests.waiting import until, until_it
from uplink_spark.jobs.gaps import gap_rows
from uplink_spark.zone.manifest import ManifestEntry
from uplink_spark.zone.reader import ZoneReader

pytestmark = [pytest.mark.slow, needs_openssl]


def ranges(landing: Path) -> list[tuple[int, int, int]]:
    """Return epoch, start and end of everything of the log that landed, in order."""
    return sorted((each.epoch, each.start, each.end) for each in entries_in(landing) if each.kind == "log")


async def sends(member: RealMember, keys: list[str]) -> None:
    """Send until each is acknowledged."""
    for key in keys:
        with trio.fail_after(60):
            while (await asked(member, send("T", b"x" * 100, f"KEYS\x01{key}\x02"))).code != 0:  # type: ignore[arg-type]  # noqa: ASYNC110
                await trio.sleep(0.05)


async def lead(member: RealMember, **how: object) -> None:
    await member.ask("group.promote", **how)
    await wait_for(member, serves=True)


@asynccontextmanager
async def shipping(
    folder: Path, *, uplink: str, group: str = ""
) -> AsyncIterator[tuple[Gateway, RealMember, RealMember]]:
    """Run a pair whose first box leads and ships to a gateway; all of them end with the block."""
    gateway = Gateway(folder / "landing")
    a, b = pair_of(folder, f'{group}\n[uplink]\ngateway = "{gateway.address}"\n{uplink}\n')
    try:
        await trio.to_thread.run_sync(gateway.start)
        await start(a, b)
        await lead(a)
        yield gateway, a, b
    finally:
        for child in (a, b, gateway):
            if child.running:
                child.kill()


async def no_longer_alone(member: RealMember) -> bool:
    """Return whether the log knows of all that this member's disk acknowledged alone."""
    history = member.data / "store" / "rocketbox" / "lineage.json"
    return history.exists() and "alone" in json.loads(history.read_text())


async def test_the_log_lands_once_and_whole_whoever_ships_it(tmp_path: Path) -> None:
    keys = [f"k{number}" for number in range(120)]
    async with shipping(tmp_path, uplink="max_delay_s = 0.1") as (gateway, a, b):
        await sends(a, keys[:30])
        await until(lambda: keys[0] in landed(gateway.landing)[0])
        await lead(b)  # handed over
        await sends(b, keys[30:60])
        await until(lambda: keys[31] in landed(gateway.landing)[0])
        b.kill()
        await lead(a, accept_loss=True)  # nothing is lost: what was acknowledged is on both
        await sends(a, keys[60:70])
        await start(b)
        await until_it(lambda: no_longer_alone(a))
        await sends(a, keys[70:90])
        gateway.kill()
        await sends(a, keys[90:])
        a.kill()
        await lead(b, accept_loss=True)
        await trio.to_thread.run_sync(gateway.start)
        await until(lambda: set(keys) <= landed(gateway.landing)[0])
        await until(lambda: bool(gaps_in(gateway.landing)))
        found, entries = ranges(gateway.landing), gaps_in(gateway.landing)
        assert {entry.gap["class"] for entry in entries if entry.gap} == {"alone"}, "of a, told by b"
        [row] = gap_rows(entries[:1]).to_pylist()
        assert 0 < row["from_offset"] < row["to_offset"] <= found[-1][2]
        assert len({epoch for epoch, _, _ in found}) == 1, "one history"
        assert found[0][1] == 0
        assert [start for _, start, _ in found[1:]] == [end for _, _, end in found[:-1]], "no gap, no double"


async def test_what_a_member_gave_up_is_in_the_gap_ledger_shipped_or_not(spark: Any, tmp_path: Path) -> None:
    async with shipping(tmp_path, group='acknowledge = "one"', uplink="max_delay_s = 0.1") as (gateway, a, b):
        await sends(a, ["on-both"])
        await until(lambda: log_files(a) == log_files(b))
        await trio.to_thread.run_sync(b.kill)
        await sends(a, ["of-a-shipped"])
        await until(lambda: "of-a-shipped" in landed(gateway.landing)[0])
        gateway.kill()
        await sends(a, ["of-a-1", "of-a-2"])
        a.kill()
        await start(b)
        await lead(b, accept_loss=True)
        await trio.to_thread.run_sync(gateway.start)
        await sends(b, ["of-b"])
        await until(lambda: "of-b" in landed(gateway.landing)[0])
        with suppress(RuntimeError):  # it may end before it is ready, to be cut at its next start
            await start(a)
        await until(lambda: not a.running or log_files(a) == log_files(b))
        if not a.running:
            await start(a)
        await until(lambda: log_files(a) == log_files(b))
        await until(lambda: {"cut", "alone"} == classes_in(gateway.landing))
        [diverged] = [each for each in [(await a.status())["diverged"]] if each]
        keys, found = landed(gateway.landing)[0], ranges(gateway.landing)
    assert {"on-both", "of-a-shipped", "of-b"} <= keys, "nothing that landed is taken back"
    assert not {"of-a-1", "of-a-2"} & keys
    [row] = [each for each in gap_rows(gaps_in(gateway.landing)).to_pylist() if each["class"] == "cut"]
    of_a = min(found, key=lambda each: each[1])[0]
    told = [row[name] for name in ("epoch", "from_offset", "to_offset", "class", "records")]
    assert told == [of_a, diverged["start"], diverged["end"], "cut", 3]
    rows = spark.read.format("commitlog_manifest").load(str(gateway.landing)).where("kind = 'gap'").collect()
    gaps = {gap["class"]: gap for gap in (json.loads(each["gap"]) for each in rows)}
    gap, alone = gaps["cut"], gaps["alone"]
    assert alone["from"] <= diverged["start"] < alone["to"], "what b acknowledged before a was back"
    assert [gap[name] for name in ("of", "from", "to", "records", "member")] == [*told[:3], 3, "a"]
    of_b = [(start, end) for epoch, start, end in found if epoch != of_a]
    assert of_b[0][0] >= diverged["start"], "what b wrote there is of another epoch: no offset is there twice"


async def test_an_express_record_lands_once_whoever_leads(tmp_path: Path) -> None:
    uplink = 'max_delay_s = 3600\nexpress = ["T"]\nexpress_max_delay_s = 0.05'
    async with shipping(tmp_path, uplink=uplink) as (gateway, a, b):
        await sends(a, ["before"])
        await until(lambda: any(each.kind == "pick" for each in entries_in(gateway.landing)))
        await lead(b)
        await sends(b, ["behind"])
        await b.ask("uplink.ship-now")
        await until(lambda: {"before", "behind"} <= landed(gateway.landing)[0])
    found = entries_in(gateway.landing)
    picks = [each for each in found if each.kind == "pick"]
    log = [each for each in found if each.kind == "log"]
    assert max(each.end for each in log) > min(each.start for each in picks)
    for each in log:
        of_both = [pick for pick in picks if pick.start < each.end and each.start < pick.end]
        assert not of_both or each.skip == ("T",), f"rows of {each.start} to {each.end} are in two pieces"


def classes_in(landing: Path) -> set[str]:
    return {str(entry.gap["class"]) for entry in gaps_in(landing) if entry.gap}


def gaps_in(landing: Path) -> list[ManifestEntry]:
    return [each for each in entries_in(landing) if each.kind == "gap"]


def entries_in(landing: Path) -> list[ManifestEntry]:
    zone = ZoneReader(str(landing))
    ends = zone.ends()
    return list(zone.entries(dict.fromkeys(ends, 0), ends))
