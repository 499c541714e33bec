"""The box's end of the line: requests in, answers out, one bench at a time, transfers that survive it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import trio

from provisioning.box import Box
from provisioning.errors import LinkLost, ProvisioningError
from provisioning.frame import ACK, CHUNK, PROGRESS, REQUEST, Message, SerialFrameDecoder, encode_frame
from provisioning.incoming import IncomingFile, make_room
from provisioning.port import Line
from provisioning.session import PROTO, Session
from provisioning.slots import SlotError, file_digest
from provisioning.speed_trial import SpeedTrial
from provisioning.transfer import WINDOW, FileSender, chunk_bytes
from provisioning.transfers import Download, Transfers

SPEEDS = (3_000_000, 921_600, 460_800, 115_200)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
MOST_WORKS = 8  # requests under way: some KiB each, and one thread works on them
LIFE_S = 1.0  # a long step shows a sign of life this often


def fresh_nonce() -> bytes:
    """Return 32 bytes nobody can guess."""
    return os.urandom(32)


class Device:
    """One box on one line."""

    def __init__(self, line: Line, box: Box, *, fresh_nonce: Callable[[], bytes] = fresh_nonce) -> None:
        self._line, self._box = line, box
        self._session = Session(box.serial, fresh_nonce=fresh_nonce)
        self._decoder = SerialFrameDecoder()
        self._transfers = Transfers()
        self._step: tuple[str, int, int] = ("", 0, 0)
        self._one_thread = trio.CapacityLimiter(1)
        self._trial = SpeedTrial(line.baud)
        self._timed = trio.Event()  # set while a download or a new speed has to be watched
        self._outbox, self._inbox = trio.open_memory_channel[Message](1024)

    async def run(self) -> None:
        """Serve until the line is gone. Raises LinkLost."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_writing)
            nursery.start_soon(self._keep_time)
            while True:
                for message in self._decoder.feed(await self._line.receive()):
                    self._session.heard(trio.current_time())
                    await self._take(message, nursery)

    async def _keep_writing(self) -> None:
        async for message in self._inbox:
            await self._line.send(encode_frame(message))

    def _tell(self, message: Message) -> None:
        try:
            self._outbox.send_nowait(message)
        except trio.WouldBlock:
            pass  # a bench that reads nothing asks again

    async def _keep_time(self) -> None:
        """Rewind a download after silence, return to the old speed when the new one proves nothing."""
        while True:
            await self._timed.wait()
            await trio.sleep(0.1)
            now_s = trio.current_time()
            if self._trial.failed(now_s):
                await self._line.set_baud(self._trial.old_baud)
            download = self._transfers.download
            if download is not None and not download.sender.done:
                download.sender.tick(now_s)
                await self._send_pieces(download, now_s)
            elif not self._trial.runs:
                self._timed = trio.Event()  # until the next download or speed: an idle line wakes nobody

    async def _take(self, message: Message, nursery: trio.Nursery) -> None:
        self._trial.heard()
        download = self._transfers.download
        if message[0] == REQUEST:
            await self._take_request(message, nursery)
        elif message[0] == CHUNK:
            await self._take_chunk(*message[1:])
        elif message[0] == ACK and download is not None and message[1] == download.number:
            now_s = trio.current_time()
            download.sender.acknowledge(message[2], message[3], now_s)
            await self._send_pieces(download, now_s)

    async def _take_request(self, message: Message, nursery: trio.Nursery) -> None:
        number, op, arguments = message[1:]
        if self._session.works >= MOST_WORKS:
            return  # a bench asks one thing at a time, and again where it gets no answer
        if self._session.repeated(number, op, arguments):
            if self._session.answer is not None:
                self._tell(self._session.answer)
            return
        if not self._trial.asks() and op == "identify":
            self._session.renew(keeping=(number, op, arguments))
        if op == "baud":
            await self._switch_speed(number, arguments)
        else:
            self._session.begin_work()
            nursery.start_soon(self._answer, number, op, arguments)

    async def _answer(self, number: int, op: str, arguments: Mapping[str, Any]) -> None:
        try:
            self._session.check(op, self._box.files.load_owner())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._show_life)
                result = await OPERATIONS[op](self, arguments)
                nursery.cancel_scope.cancel()
            reply = self._session.result(number, result)
        except* ProvisioningError as group:
            reply = self._session.error(number, _first(group))
        except* (OSError, ValueError, TypeError, KeyError, SlotError) as group:
            reply = self._session.error(number, _failed(op, _first(group)))
        finally:
            self._session.end_work(trio.current_time())
        if not SerialFrameDecoder().feed(encode_frame(reply)):
            reply = self._session.error(
                number, ProvisioningError("E501", f"the answer to {op} does not fit into a frame")
            )
        self._tell(reply)

    async def _show_life(self) -> None:
        while True:
            await trio.sleep(LIFE_S)
            self._tell([PROGRESS, 0, *self._step])

    def _progress(self, stage: str, done: int, total: int) -> None:
        self._step = (stage, done, total)  # read by _show_life; assigned from the worker's thread, whole

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await trio.to_thread.run_sync(partial(work, *arguments), limiter=self._one_thread)

    # --- transfers

    async def _take_chunk(self, number: int, offset: int, data: bytes) -> None:
        upload = self._transfers.upload
        if upload is None or number != upload.number or not self._session.authenticated:
            return
        if upload.receiver.take(offset, len(data)):
            try:
                await self._in_thread(upload.file.write, data)
            except ProvisioningError:
                upload.receiver.next = upload.file.have
                self._tell([ACK, number, upload.receiver.next, 0])
                return
        self._tell([ACK, number, upload.receiver.next, WINDOW])

    async def _send_pieces(self, download: Download, now_s: float) -> None:
        for piece in download.sender.pieces(now_s):
            data = await self._in_thread(_read_at, download.path, piece.offset, piece.length)
            self._tell([CHUNK, download.number, piece.offset, data])

    async def _switch_speed(self, number: int, arguments: Mapping[str, Any]) -> None:
        rate = arguments.get("rate")
        try:
            self._session.check("baud", self._box.files.load_owner())
            if rate not in SPEEDS:
                raise ProvisioningError("E104", f"rate {rate!r} is not one of {', '.join(map(str, SPEEDS))}")
        except ProvisioningError as exc:
            self._tell(self._session.error(number, exc))
            return
        await self._line.send(encode_frame(self._session.result(number, {"rate": rate})))
        old_baud = self._line.baud
        await self._line.set_baud(rate)
        self._trial.begin(old_baud, trio.current_time())
        self._timed.set()

    # --- operations; each returns the result map

    async def _identify(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self._in_thread(self._box.identity)
        return found | {"proto": PROTO, "nonce": self._session.nonce}

    async def _status(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(await self._in_thread(self._box.hands.status))

    async def _doctor(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(await self._in_thread(self._box.hands.doctor))

    async def _auth(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return self._session.authenticate(arguments, self._box.files.load_owner(), trio.current_time())

    async def _claim(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(await self._in_thread(self._box.claim, arguments))

    async def _plan(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        plan = await self._in_thread(self._box.plan, arguments)
        return {"plan": plan.id, "changes": [change[:200] for change in plan.changes[:24]], "count": len(plan.changes)}

    async def _apply(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        receipt = await self._in_thread(self._box.apply, str(arguments.get("plan")), arguments, self._progress)
        return {"receipt": receipt}

    async def _verify(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(await self._in_thread(self._box.verify, arguments))

    async def _put(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        sha256, size = str(arguments.get("sha256")), int(arguments.get("size", -1))
        folder, upload = self._box.files.incoming, self._transfers.upload
        if await self._in_thread(IncomingFile.is_whole, folder, sha256):
            self._transfers.drop_upload()
            return {"t": 0, "have": size, "window": WINDOW, "done": True}
        if upload is not None and upload.file.sha256 == sha256 and upload.receiver.done:
            self._transfers.upload = None
            await self._in_thread(upload.file.finish, lambda done: self._progress("read back", done, size))
            return {"t": upload.number, "have": size, "window": WINDOW, "done": True}
        self._transfers.drop_upload()
        await self._in_thread(partial(make_room, folder, size, now_s=self._box._now_s(), keep=sha256))
        file = await self._in_thread(IncomingFile, folder, sha256, size)
        number = self._transfers.receive(file, size).number
        return {"t": number, "have": file.have, "window": WINDOW, "done": False}

    async def _get(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if arguments.get("kind") != "support":
            raise ProvisioningError("E105", f"nothing of kind {arguments.get('kind')!r} can be fetched")
        path = self._box.files.state / "support.tar.gz"
        written = await self._in_thread(self._box.hands.support, path)
        path = written if isinstance(written, Path) else path  # elsewhere when that disk is full
        size, sha256 = await self._in_thread(file_digest, path)
        baud, have = self._line.baud, max(0, int(arguments.get("have", 0)))
        sender = FileSender(size, chunk=chunk_bytes(baud), baud=baud, have=min(size, have))
        number = self._transfers.send(path, sender).number
        self._timed.set()
        return {"t": number, "size": size, "sha256": sha256}

    async def _install(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        slot = await self._in_thread(self._box.install, arguments, self._progress)
        await self._in_thread(self._box.hands.activate, self._progress)
        return {"slot": slot}

    async def _commit(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(await self._in_thread(self._box.commit))

    async def _rollback(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(await self._in_thread(self._box.roll_back, str(arguments.get("reason", "asked for"))))

    async def _time(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        await self._in_thread(self._box.hands.set_time, int(arguments["time"]))
        return {}

    async def _reboot(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        await self._in_thread(self._box.hands.reboot, "asked for over the serial line")
        return {}

    async def _safe_leave(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        await self._in_thread(self._box.hands.leave_safe)
        return {}

    async def _release(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        await self._in_thread(self._box.release)
        self._session.authenticated = False
        return {}

    async def _factory_reset(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._transfers.drop_upload()
        await self._in_thread(partial(self._box.factory_reset, keep_data=bool(arguments.get("keep_data"))))
        self._session.authenticated = False
        return {}


OPERATIONS = {
    "identify": Device._identify,
    "status": Device._status,
    "doctor": Device._doctor,
    "auth": Device._auth,
    "claim": Device._claim,
    "plan": Device._plan,
    "apply": Device._apply,
    "verify": Device._verify,
    "put": Device._put,
    "get": Device._get,
    "install": Device._install,
    "commit": Device._commit,
    "rollback": Device._rollback,
    "time": Device._time,
    "reboot": Device._reboot,
    "safe_leave": Device._safe_leave,
    "release": Device._release,
    "factory_reset": Device._factory_reset,
}


def _failed(op: str, error: Exception) -> ProvisioningError:
    """Return what the bench is told of an error that no step expects: E301 where the disk takes nothing, else E501."""
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        where = f" at {error.filename}" if error.filename else ""
        text = f"{op}: the disk of the box is full{where}: free space on it (`df`), then run the same command again"
        return ProvisioningError("E301", text[:900])
    return ProvisioningError("E501", f"{op} failed on the box: {error!r}"[:900])


def _first(group: BaseExceptionGroup[Any]) -> Any:
    """Return the one exception in a nest of groups: an operation is a single task."""
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner


def _read_at(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as source:
        source.seek(offset)
        return source.read(length)


async def serve_device(line: Line, box: Box) -> None:
    """Serve benches on one line until it is gone."""
    try:
        await Device(line, box).run()
    except* LinkLost:
        pass
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await line.aclose()
