"""Several gateways on one zone: which of them lands which shard, and how a shard goes from one to another.

manifest/gateways/<name>.json     a gateway of the zone: its address, and a beat that rises while it lives
manifest/<shard>/owner.json       the address of the gateway that has the shard, empty after it gave it up

Each gateway finds by itself who should have a shard: of those that live the one whose address hashes highest with it
and that has room, for none has more than its share. So few shards move when one comes or goes. A gateway takes a shard
that is its own when the one before has given it up or is dead, and reads its manifest before it lands anything. On a
disk the lock of the shard, in a bucket the name of the next manifest object lets one gateway write: who was taken for
dead and still runs loses at its next commit.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import trio

from uplink_spark.centre.hub import Hub
from uplink_spark.centre.lander import ShardLander
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.errors import LandingError

log = logging.getLogger("uplink_spark.gateway")
FOLDER = "manifest/gateways"
BEAT_S, BUCKET_BEAT_S = 1.0, 5.0  # in a bucket each beat is a request or two
STALE_BEATS = 6
FORGET_S = 600  # a gateway that has not beaten for so long is no gateway of the zone any more
MEMBERS = 64
LEAVE_S = 10
T = TypeVar("T")


def owner_path(shard: int) -> str:
    return f"manifest/{shard:04x}/owner.json"


def path_of(address: str) -> str:
    """Return where the beat of a gateway is."""
    return f"{FOLDER}/{re.sub(r'[^A-Za-z0-9.-]', '_', address)}.json"


def owners_of(shards: int, addresses: Collection[str]) -> list[str]:
    """Return which of the gateways that live should have each shard; there is at least one gateway.

    A shard goes to the address that hashes highest with it among those that have room: none has more than its share,
    rounded up. By hashes alone one of three gateways would have half of 16 shards as a rule, and so half of all boxes.
    """
    most, has = -(-shards // len(addresses)), Counter[str]()
    owners = list[str]()
    for shard in range(shards):
        room = [address for address in addresses if has[address] < most]
        owners.append(max(room, key=lambda address: hashlib.sha256(f"{address} {shard}".encode()).digest()))
        has[owners[-1]] += 1
    return owners


@dataclass(slots=True)
class Pulse:
    """Which gateways live: those whose beat has changed of late, by the clock of who looks."""

    own: str
    beats: dict[str, tuple[int, float]] = field(default_factory=dict)  # address → beat, when it was seen first

    def living(self, seen: Mapping[str, int], now: float, stale_s: float) -> set[str]:
        """Return the addresses of gateways that live, the own one among them."""
        for address in self.beats.keys() - seen.keys():
            del self.beats[address]
        for address, beat in seen.items():
            if self.beats.get(address, (None, 0.0))[0] != beat:
                self.beats[address] = beat, now
        return {address for address, (_, at) in self.beats.items() if now - at <= stale_s} | {self.own}

    def long_dead(self, now: float) -> dict[str, int]:
        """Return the addresses of gateways that are not to be looked at any more, with the beat they stopped at."""
        return {
            address: beat for address, (beat, at) in self.beats.items() if now - at > FORGET_S and address != self.own
        }


class GatewayBeats:
    """The gateways of a zone as one of them sees them; its own beat goes on whatever else it waits for."""

    def __init__(self, records: CentreRecords, own: str, beat_s: float) -> None:
        self._records, self._own, self._beat_s = records, own, beat_s
        self._pulse, self._beat, self._thread = Pulse(own), 0, trio.CapacityLimiter(1)
        self.living: set[str] = set()  # empty before the first look

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Beat and look until cancelled; started() after the first look."""
        told = ""
        while True:
            try:
                dead = self._pulse.long_dead(trio.current_time())
                seen = await trio.to_thread.run_sync(self._exchange, dead, limiter=self._thread)
                first, told = not self.living, ""
                self.living = self._pulse.living(seen, trio.current_time(), self._beat_s * STALE_BEATS)
                if first:
                    task_status.started()
            except OSError as error:
                if told != str(error):
                    log.error("the gateways of this zone cannot be looked at: %s; tried again", error)
                told = str(error)
            await trio.sleep(self._beat_s)

    def _exchange(self, dead: Mapping[str, int]) -> dict[str, int]:
        """Write the own beat, remove the files of dead gateways and return the beats of all others."""
        self._beat += 1
        write_json(self._records, path_of(self._own), {"address": self._own, "beat": self._beat})
        seen = dict(filter(None, map(self._member, sorted(self._records.names(FOLDER))[:MEMBERS])))
        for address, beat in dead.items():
            if seen.get(address) == beat:
                self._records.delete(path_of(address))
                log.info("gateway %s has not beaten for %d s and is forgotten", address, FORGET_S)
                del seen[address]
        return seen

    def _member(self, name: str) -> tuple[str, int] | None:
        found = read_json(self._records, f"{FOLDER}/{name}") if name.endswith(".json") else {}
        address, beat = found.get("address"), found.get("beat")
        return (address, beat) if isinstance(address, str) and address and isinstance(beat, int) else None

    async def leave(self) -> None:
        """Remove the own beat, so that nobody waits for it."""
        try:
            await trio.to_thread.run_sync(self._records.delete, path_of(self._own), limiter=self._thread)
        except OSError as error:
            log.warning("the other gateways are not told that this one stops: %s", error)


class ShardGroup:
    """Takes and gives up the shards of one gateway of several."""

    def __init__(self, hub: Hub, own: str, make_lander: Callable[[int], ShardLander], *, beat_s: float) -> None:
        self._hub, self._records, self._own, self._make_lander = hub, hub.records, own, make_lander
        self._beat_s, self._beats = beat_s, GatewayBeats(hub.records, own, beat_s)
        self._wanted: dict[int, str] = {}
        self._held: dict[int, _Held] = {}
        self._told: dict[int, str] = {}  # why a shard could not be taken, as the log has it
        self._unsaid: set[int] = set()  # shards given up, of which no record says so yet
        self._thread = trio.CapacityLimiter(1)
        hub.elsewhere = self.elsewhere

    def elsewhere(self, shard: int) -> str | None:
        """Return the address of the gateway that should have a shard which this one has not."""
        address = self._wanted.get(shard, self._own)
        return None if address == self._own else address

    async def run(self) -> None:
        """Beat, look who lives, take and give up; at the end everything is given up."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._beats.run)
                while True:
                    try:
                        await self._once(nursery)
                    except OSError as error:
                        log.error("a shard cannot be given up: %s; tried again", error)
                    await trio.sleep(self._beat_s)
        finally:
            with trio.move_on_after(LEAVE_S, shield=True):
                await self._beats.leave()

    async def _once(self, nursery: trio.Nursery) -> None:
        for shard in tuple(self._unsaid):
            await self._in_thread(self._disown, shard)
            self._unsaid.discard(shard)
        shards, living, owners = self._hub.zone.shards, set[str](), list[str]()
        for shard in range(shards):
            if living != self._beats.living:  # taking a shard takes a while
                living = self._beats.living
                owners = owners_of(shards, living)
            wanted = self._wanted[shard] = owners[shard]
            if shard in self._held and wanted != self._own:
                await self._give_up(shard)
            elif shard not in self._held and wanted == self._own:
                await self._take(shard, living, nursery)

    async def _take(self, shard: int, living: Collection[str], nursery: trio.Nursery) -> None:
        """Open a shard whose owner gave it up or is dead; later, where it is still held."""
        lander = self._make_lander(shard)
        try:
            holder = await self._in_thread(self._holder, shard)
            if holder != self._own and holder in living:
                return
            await self._in_thread(lander.writer.open, lander.cover)
            await self._in_thread(write_json, self._records, owner_path(shard), {"address": self._own})
        except (OSError, LandingError) as error:
            lander.writer.close()
            if self._told.get(shard) != str(error):
                log.warning("shard=%04x not taken: %s; tried again", shard, error)
            self._told[shard] = str(error)
            return
        self._told.pop(shard, None)
        log.info("shard=%04x is landed here from seq %d on", shard, lander.writer.next_seq)
        self._unsaid.discard(shard)
        known = self._hub.counts.shards
        if shard in known:
            lander.counts.go_on_from(known[shard])
        known[shard] = lander.counts
        self._held[shard] = _Held(lander)
        self._hub.landers[shard] = lander
        nursery.start_soon(self._land, shard, self._held[shard])

    async def _land(self, shard: int, held: _Held) -> None:
        """Run a shard's lander until the shard is given up or another gateway writes it."""
        try:
            with held.scope:
                await held.lander.run()
        except LandingError as error:
            log.error("%s", error)
        finally:
            if self._hub.landers.get(shard) is held.lander:
                del self._hub.landers[shard]
            self._held.pop(shard, None)
            self._hub.send_away(shard)
            held.lander.stop()
            held.lander.writer.close()
            self._unsaid.add(shard)
            held.ended.set()

    async def _give_up(self, shard: int) -> None:
        held = self._held[shard]
        self._hub.landers.pop(shard, None)  # who comes now is told where to go
        self._hub.send_away(shard)
        held.scope.cancel()
        await held.ended.wait()
        log.info("shard=%04x is landed by %s from now on", shard, self._wanted[shard])
        await self._in_thread(self._disown, shard)
        self._unsaid.discard(shard)

    def _holder(self, shard: int) -> object:
        return read_json(self._records, owner_path(shard)).get("address")

    def _disown(self, shard: int) -> None:
        """Say that a shard is free, but not of one that another gateway has taken."""
        if self._holder(shard) == self._own:
            write_json(self._records, owner_path(shard), {"address": ""})

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await trio.to_thread.run_sync(call, *arguments, limiter=self._thread)


class _Held:
    """A shard that is landed here."""

    def __init__(self, lander: ShardLander) -> None:
        self.lander, self.scope, self.ended = lander, trio.CancelScope(), trio.Event()


def read_json(records: CentreRecords, path: str) -> dict[str, object]:
    """Return a small JSON object; nothing where it is not there or none. Raises OSError."""
    try:
        found = json.loads(records.read(path) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def write_json(records: CentreRecords, path: str, body: dict[str, object]) -> None:
    """Replace a small JSON object. Raises OSError."""
    records.replace(path, json.dumps(body).encode())
