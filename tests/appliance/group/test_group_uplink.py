"""The uplink of a pair: one log upstream, whoever leads; no gap and no double after leaders were killed."""

from pathlib import Path

import pytest
import trio

from tests.appliance.box import send
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import RealMember, pair_of, start, wait_for
from tests.appliance.group.test_member import asked
from tests.interop.box import Gateway
from tests.soak.site import landed
from tests.waiting import until
from uplink_spark.zone.reader import ZoneReader

pytestmark = [pytest.mark.slow, needs_openssl]


def ranges(landing: Path) -> list[tuple[int, int, int]]:
    """Return epoch, start and end of everything of the log that landed, in order."""
    zone = ZoneReader(str(landing))
    ends = zone.ends()
    return sorted((e.epoch, e.start, e.end) for e in zone.entries(dict.fromkeys(ends, 0), ends) if e.kind == "log")


async def sends(member: RealMember, keys: list[str]) -> None:
    """Send until each is acknowledged."""
    for key in keys:
        with trio.fail_after(60):
            while (await asked(member, send("T", b"x" * 100, f"KEYS\x01{key}\x02"))).code != 0:  # type: ignore[arg-type]  # noqa: ASYNC110
                await trio.sleep(0.05)


async def lead(member: RealMember, **how: object) -> None:
    await member.ask("group.promote", **how)
    await wait_for(member, serves=True)


async def test_the_log_lands_once_and_whole_whoever_ships_it(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "landing")
    a, b = pair_of(tmp_path, f'[uplink]\ngateway = "{gateway.address}"\nmax_delay_s = 0.1\n')
    keys = [f"k{number}" for number in range(120)]
    try:
        await trio.to_thread.run_sync(gateway.start)
        await start(a, b)
        await lead(a)
        await sends(a, keys[:30])
        await until(lambda: keys[0] in landed(gateway.landing)[0])
        await lead(b)  # handed over
        await sends(b, keys[30:60])
        await until(lambda: keys[31] in landed(gateway.landing)[0])
        b.kill()
        await lead(a, accept_loss=True)  # nothing is lost: what was acknowledged is on both
        await start(b)
        await sends(a, keys[60:90])
        gateway.kill()
        await sends(a, keys[90:])
        a.kill()
        await lead(b, accept_loss=True)
        await trio.to_thread.run_sync(gateway.start)
        await until(lambda: set(keys) <= landed(gateway.landing)[0])
        found = ranges(gateway.landing)
        assert len({epoch for epoch, _, _ in found}) == 1, "one history"
        assert found[0][1] == 0
        assert [start for _, start, _ in found[1:]] == [end for _, _, end in found[:-1]], "no gap, no double"
    finally:
        for child in (a, b, gateway):
            if child.running:
                child.kill()
