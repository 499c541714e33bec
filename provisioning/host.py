"""The bench's end of the line: find a box, talk to it, send files; a pulled cable costs time, never bytes."""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import trio

from provisioning.device import SPEEDS
from provisioning.errors import LinkLost, ProvisioningError
from provisioning.frame import (
    ACK,
    CHUNK,
    ERROR,
    MAX_PIECE,
    PROGRESS,
    REQUEST,
    RESULT,
    Message,
    SerialFrameDecoder,
    encode_frame,
)
from provisioning.ownership import bench_mac, box_mac, box_secret, owner_id
from provisioning.port import Line, PortCandidate, open_line
from provisioning.session import PROTO
from provisioning.transfer import WINDOW, FileSender, Receiver, chunk_bytes

T = TypeVar("T")
ATTEMPTS = 5
REPLY_S, IDENTIFY_S = 2.0, 0.5
SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # it names files of the bench, whoever answers at the port
SILENT_S = 30.0  # a transfer without a word from the box
Show = Callable[[str, int, int], None]


def quiet(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Who provisions: the fleet secret, the name of the owner and of the person.

    `keep` is called before a box is claimed: a new secret is written down when the first box needs it, not before.
    """

    fleet_secret: bytes = field(repr=False)
    owner_id: str = ""
    user: str = ""
    keep: Callable[[], None] = lambda: None
    is_kept: bool = True

    @property
    def name(self) -> str:
        return self.owner_id or owner_id(self.fleet_secret)

    @property
    def planned_name(self) -> str:
        """Return what a plan calls the owner: one that goes by a secret that is not kept yet has no name to rely on."""
        return self.name if self.owner_id or self.is_kept else "a new owner, whose secret is made then"


class BenchConversation:
    """One bench talking to whatever is at the other end of a line."""

    def __init__(self, line: Line, *, show: Show = quiet, seed: int | None = None) -> None:
        self.line, self._show = line, show
        self._decoder = SerialFrameDecoder()
        self._number = random.Random(seed).randrange(1, 1 << 31)
        self._waiting: list[Message] = []
        self._signs = 0  # of life, while a request is worked on
        self.serial = ""

    @property
    def dropped(self) -> int:
        return self._decoder.dropped

    @property
    def received(self) -> int:
        return self._decoder.received

    async def request(self, op: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask until an answer comes, or five silences in a row. Raises ProvisioningError: the box's own, E101 or E104.

        A box that shows life is at work, however long: a slow one falls silent again and again while it restarts.
        """
        self._number = self._number % 0xFFFFFFFF + 1
        frame = encode_frame([REQUEST, self._number, op, dict(arguments or {})])
        if len(frame) - 2 > MAX_PIECE:
            text = f"configuration and keys need {len(frame) - 2} bytes, at most {MAX_PIECE} fit into one message"
            raise ProvisioningError("E401", f"{text}: pass some of the keys in another run; keys on the box stay")
        travel_s, silences = 2 * len(frame) * 10 / self.line.baud, 0
        while silences < ATTEMPTS:
            first_s = IDENTIFY_S * 2**silences if op == "identify" else REPLY_S
            signs = self._signs
            await self.line.send(frame)
            answer = await self._answer(self._number, min(first_s, REPLY_S) + travel_s)
            silences = silences + 1 if self._signs == signs else 1
            if answer is not None and answer[0] == RESULT:
                return dict(answer[2])
            if answer is not None:
                raise ProvisioningError.from_wire(answer[2], answer[3], answer[4])
        dropped, received = self._decoder.dropped, self._decoder.received
        if dropped and received:
            text = f"{dropped} of {dropped + received} frames on {self.line.name} were damaged: lower --baud"
            raise ProvisioningError("E104", text, dropped=dropped, frames=dropped + received)
        if dropped:  # the console of a box that still starts echoes what it is asked; so does a wrong rate look
            text = f"no box answers at {self.line.name}, only console text or noise: still starting? another --baud?"
            raise ProvisioningError("E101", text, dropped=dropped, frames=dropped)
        raise ProvisioningError("E101", f"no box answers at {self.line.name}: power? cable? another --port?")

    async def _answer(self, number: int, patience_s: float) -> Message | None:
        """Return the answer to this request, None after silence; signs of life prolong the wait."""
        with trio.move_on_after(patience_s) as patience:
            while True:
                message = await self._next()
                if message[0] in (RESULT, ERROR) and message[1] == number:
                    return message
                if message[0] == PROGRESS:
                    self._signs += 1
                    patience.deadline = trio.current_time() + max(patience_s, REPLY_S)
                    if message[2]:
                        self._show(message[2], message[3], message[4])
        return None

    async def _next(self) -> Message:
        while not self._waiting:
            self._waiting = self._decoder.feed(await self.line.receive())
        return self._waiting.pop(0)

    async def identify(self) -> dict[str, Any]:
        """Ask who is there; the only request an unknown port ever sees. Raises E105."""
        found = await self.request("identify", {})
        if found.get("proto") != PROTO:
            raise ProvisioningError("E105", f"the box speaks protocol {found.get('proto')}, this bench {PROTO}")
        serial = found.get("serial")
        if not isinstance(serial, str) or not SERIAL.fullmatch(serial):
            raise ProvisioningError("E105", f"the box calls itself {str(serial)[:80]!r}, which is not a serial number")
        self.serial = serial
        return found

    async def own(self, identity: Mapping[str, Any], bench: Bench) -> str:
        """Claim an unclaimed box, then prove ownership both ways; returns `claimed` or `known`."""
        secret, how = box_secret(bench.fleet_secret, self.serial), "known"
        if identity["claimed"] is None:
            bench.keep()
            await self.request("claim", {"owner_id": bench.name, "secret": secret})
            how = "claimed"
        host_nonce, nonce = os.urandom(32), bytes(identity["nonce"])
        mac = bench_mac(secret, self.serial, nonce, host_nonce)
        answer = await self.request("auth", {"host_nonce": host_nonce, "mac": mac, "owner_id": bench.name})
        if answer.get("mac") != box_mac(secret, self.serial, nonce, host_nonce):
            raise ProvisioningError("E203", "the box could not prove that it is the one that was claimed")
        return how

    async def speed_up(self, wanted: int) -> int:
        """Try rates from `wanted` down, return the one that works."""
        for rate in SPEEDS:
            if rate > wanted or rate <= self.line.baud:
                continue
            before = self.line.baud
            await self.request("baud", {"rate": rate})
            await self.line.set_baud(rate)
            try:
                await self.request("identify", {"proves": rate})
            except ProvisioningError:
                await self.line.set_baud(before)
                await trio.sleep(2.0)
            else:
                return rate
        return self.line.baud

    # --- transfers

    async def put(self, kind: str, source: BinaryIO, sha256: str, size: int, *, first: int | None = None) -> None:
        """Send a file, or its first bytes, from where the box has it. Raises E301, E302, LinkLost."""
        chunk, upto = chunk_bytes(self.line.baud), size if first is None else min(first, size)
        arguments = {"kind": kind, "sha256": sha256, "size": size, "chunk": chunk}
        opened = await self.request("put", arguments)
        while not opened["done"]:
            if opened["have"] < upto:
                await self._send(int(opened["t"]), int(opened["have"]), source, upto)
            elif upto < size:
                return
            opened = await self.request("put", arguments)
        self._show(kind, size, size)

    async def _send(self, transfer: int, have: int, source: BinaryIO, size: int) -> None:
        sender = FileSender(size, chunk=chunk_bytes(self.line.baud), baud=self.line.baud, have=have)
        silent_since_s = trio.current_time()
        while not sender.done:
            for piece in sender.pieces(trio.current_time()):
                source.seek(piece.offset)
                await self.line.send(encode_frame([CHUNK, transfer, piece.offset, source.read(piece.length)]))
            with trio.move_on_after(sender.due_s(trio.current_time())):
                message = await self._next()
                if message[0] == ACK and message[1] == transfer:
                    sender.acknowledge(message[2], message[3], trio.current_time())
                    self._show("upload", sender.acknowledged, size)
                    silent_since_s = trio.current_time()
            sender.tick(trio.current_time())
            if trio.current_time() - silent_since_s > SILENT_S + 10 * chunk_bytes(self.line.baud) * 10 / self.line.baud:
                raise LinkLost(f"{self.line.name}: no acknowledgement for {SILENT_S:.0f} s")

    async def get(self, kind: str, out: Path) -> dict[str, Any]:
        """Fetch a file, verified. Raises E302, LinkLost."""
        opened = await self.request("get", {"kind": kind})
        number, size = int(opened["t"]), int(opened["size"])
        receiver, digest, heard_s = Receiver(size), hashlib.sha256(), trio.current_time()
        with out.open("wb") as target:
            await self.line.send(encode_frame([ACK, number, 0, WINDOW]))
            while not receiver.done:
                if trio.current_time() - heard_s > SILENT_S:
                    raise LinkLost(f"{self.line.name}: nothing of the file for {SILENT_S:.0f} s")
                with trio.move_on_after(REPLY_S):
                    message = await self._next()
                    if message[0] != CHUNK or message[1] != number:
                        continue
                    heard_s = trio.current_time()
                    if receiver.take(message[2], len(message[3])):
                        target.write(message[3])
                        digest.update(message[3])
                        self._show(kind, receiver.next, size)
                await self.line.send(encode_frame([ACK, number, receiver.next, WINDOW]))
        if digest.hexdigest() != opened["sha256"]:
            raise ProvisioningError("E302", f"{out} differs from what the box sent: fetch it again")
        return opened


@dataclass(frozen=True, slots=True)
class FoundBox:
    """A box at a port."""

    port: str
    identity: Mapping[str, Any]


async def find(ports: Sequence[str], *, serial: str = "", baud: int = 115200) -> FoundBox:
    """Identify what is at these ports, return the one box wanted. Raises E101, E102 and what opening raises."""
    found: list[FoundBox] = []
    failures: list[ProvisioningError] = []

    async def look(port: str) -> None:
        try:
            line = await open_line(port, baud=baud)
            try:
                found.append(FoundBox(port, await BenchConversation(line).identify()))
            finally:
                with trio.CancelScope(shield=True):
                    await line.aclose()
        except ProvisioningError as exc:
            failures.append(exc)
        except LinkLost as exc:
            failures.append(ProvisioningError("E101", f"{port} disappeared: {exc}"))

    async with trio.open_nursery() as nursery:
        for port in ports:
            nursery.start_soon(look, port)
    fitting = [one for one in found if not serial or one.identity["serial"] == serial]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        boxes = ", ".join(f"{one.identity['serial']} at {one.port}" for one in sorted(fitting, key=lambda f: f.port))
        raise ProvisioningError("E102", f"several boxes answer ({boxes}): use --port or --serial")
    if len(ports) == 1 and failures:
        raise failures[0]
    where = ", ".join(ports)
    wanted = f"box {serial}" if serial else "box"
    if found:
        others = ", ".join(f"{one.identity['serial']} at {one.port}" for one in sorted(found, key=lambda f: f.port))
        raise ProvisioningError("E101", f"{others} answers, not {serial}: is the cable in the right box?")
    if not ports:
        raise ProvisioningError("E101", "there is no USB serial adapter: is it plugged in? another one: --port")
    raise ProvisioningError("E101", f"no {wanted} answers at {where}: power? cable? --port?")


def choose_ports(candidates: Sequence[PortCandidate], ask: Callable[[str], bool]) -> list[str]:
    """Return the ports worth asking: known adapters, others only with the user's consent."""
    known = [one.name for one in candidates if one.known]
    if known:
        return known
    return [one.name for one in candidates if ask(f"{one.text} is not a known adapter. Try it?")]


async def keep_trying(
    port: str,
    work: Callable[[BenchConversation, dict[str, Any]], Awaitable[T]],
    *,
    show: Show = quiet,
    baud: int = 115200,
    serial: str = "",
    lost: Callable[[str], None] = lambda text: None,
    give_up_s: float = 600.0,
) -> T:
    """Run `work` on an open conversation; when the line is lost wait for the same box and run it again from the start.

    Patience starts again with each loss. `work` must be repeatable: every operation of a box is. Raises E101 when the
    box does not come back, E402 when another one does.
    """
    met: set[str] = {serial} if serial else set()
    gone_since_s: float | None = None
    there = False

    async def work_again(talk: BenchConversation, identity: dict[str, Any]) -> T:
        nonlocal there
        there = True
        return await work(talk, identity)

    while True:
        there = False
        try:
            return await _one_conversation(port, work_again, show, baud, met)
        except LinkLost as exc:
            lost(str(exc))
            gone_since_s = trio.current_time() if there or gone_since_s is None else gone_since_s
        except ProvisioningError as exc:
            away_s = 0.0 if gone_since_s is None else trio.current_time() - gone_since_s
            silent = exc.code == "E101" and gone_since_s is not None
            if away_s > give_up_s or not (silent or exc.code == "E204"):
                raise
            lost(exc.text)
        await trio.sleep(0.2)


async def _one_conversation(
    port: str,
    work: Callable[[BenchConversation, dict[str, Any]], Awaitable[T]],
    show: Show,
    baud: int,
    met: set[str],
) -> T:
    """Open the line, identify, work, close. `met` holds the serial number wanted, or gets the one found."""
    line = await open_line(port, baud=baud)
    try:
        talk = BenchConversation(line, show=show)
        identity = await talk.identify()
        if not met:
            met.add(talk.serial)
        if talk.serial not in met:
            wanted = ", ".join(met)
            text = f"box {talk.serial} is at {port}, {wanted} is expected: change the cable or the row"
            raise ProvisioningError("E402", text)
        return await work(talk, identity)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await line.aclose()
