"""What the running box does for `rocketbox uplink ...`: each action answers text for people and values for programs."""

import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from appliance.access.private_file import replace_private
from appliance.admin import Action, AdminRefused, AdminRequest

if TYPE_CHECKING:
    from uplink_spark.box.shipper import Uplink

Result = TypeVar("Result")
GOOD, UNHEALTHY = 0, 10
SHOWN = 1000


def said(text: str, value: object, code: int = GOOD) -> dict[str, object]:
    """Return an answer: lines to print, the object for --json, the command's exit code."""
    return {"text": text, "value": value, "code": code}


def stick_secret(path: Path) -> bytes:
    """Return the box's uplink secret, made at first use and readable by the box alone. Blocks. Raises OSError."""
    try:
        return bytes.fromhex(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        pass
    except ValueError as exc:
        raise AdminRefused(
            f"{path} is not a secret in hex: restore it, or delete it and give the centre the new one"
        ) from exc
    secret = secrets.token_bytes(32)
    replace_private(path, secret.hex() + "\n")
    return secret


def uplink_actions(uplink: "Uplink", secret_file: Path) -> dict[str, Action]:
    """Return the actions by name, over the uplink of a running box."""
    asked = _Asked(uplink, secret_file)
    names = ("status", "pause", "resume", "ship-now", "gaps", "receipts", "test", "export", "import", "discard")
    return {f"uplink.{name}": getattr(asked, name.replace("-", "_").replace("import", "take")) for name in names} | {
        "uplink.identity": asked.identity
    }


class _Asked:
    def __init__(self, uplink: "Uplink", secret_file: Path) -> None:
        self._uplink, self._state = uplink, uplink.shipper.state
        self._secret_file = secret_file

    async def status(self, question: AdminRequest) -> object:
        from uplink_spark.box.report import healthy, status_json, status_text

        status = self._uplink.statistics()
        return said(status_text(status), status_json(status), GOOD if healthy(status) else UNHEALTHY)

    async def pause(self, question: AdminRequest) -> object:
        return await self._set_paused(
            True, "paused on this box: its log is kept until the uplink is resumed or its quota is reached"
        )

    async def resume(self, question: AdminRequest) -> object:
        return await self._set_paused(False, "resumed")

    async def _set_paused(self, paused: bool, text: str) -> object:
        self._state.set_paused(paused)
        await self._state.workers.in_thread(self._state.ledger.save)  # holds after a restart too
        return said(text, {"paused": paused})

    async def ship_now(self, question: AdminRequest) -> object:
        if self._state.ledger.paused:
            raise AdminRefused("the uplink is paused: `rocketbox uplink resume` first")
        self._state.ship_now()
        status = self._uplink.statistics()
        waiting, to = status.unshipped_bytes, self._state.wakes.ship_now_to
        text = f"shipping {waiting} bytes up to log offset {to}"
        if not status.connected:
            text = f"connecting now; {waiting} bytes up to log offset {to} leave once the gateway answers"
        if not status.connected and status.last_error:
            text += f"; last error: {status.last_error}; `rocketbox uplink test` tries each step"
        return said(text, {"bytes": waiting})

    async def gaps(self, question: AdminRequest) -> object:
        from uplink_spark.box.report import gap_rows

        ledger = self._state.ledger
        rows = gap_rows(ledger.gaps.log.gaps[-SHOWN:], ledger.gaps.delivered)
        return said("\n".join(map(_gap_line, rows)) or "no gaps", rows)

    async def receipts(self, question: AdminRequest) -> object:
        rows = [_receipt(seen) for seen in self._state.ledger.receipts]
        lines = [f"{r['at']}  {r['kind']:<4} {r['from']}..{r['to']}  seq {r['shard']}:{r['seq']}" for r in rows]
        return said("\n".join(lines) or "no receipt since this start of the box", rows)

    async def test(self, question: AdminRequest) -> object:
        from uplink_spark.box.report import try_uplink

        tried = await try_uplink(self._state, self._state.config, self._uplink.shipper.hello)
        lines = [f"{line.step:<8} {'ok    ' if line.ok else 'FAILED'}  {line.text}" for line in tried]
        value = [{"step": line.step, "ok": line.ok, "text": line.text} for line in tried]
        return said("\n".join(lines), value, GOOD if all(line.ok for line in tried) else UNHEALTHY)

    async def export(self, question: AdminRequest) -> object:
        from uplink_spark.box.stick import export_pieces

        state, folder = self._state, _folder(question)
        spool, codec = self._uplink.shipper.quota.spool, _stick_codec(state.config.codec)
        index = await self._on_stick(lambda secret: export_pieces(state, spool, folder, secret, codec))
        size = sum(file.length for file in index.files)
        text = (
            f"{len(index.files)} pieces, {size} bytes, log up to {index.durable}; next: sweep the stick at the centre"
        )
        return said(text, {"pieces": len(index.files), "bytes": size, "durable": index.durable})

    async def take(self, question: AdminRequest) -> object:
        from uplink_spark.box.stick import import_receipts

        folder, spool = _folder(question), self._uplink.shipper.quota.spool
        taken = await self._on_stick(lambda secret: import_receipts(self._state, spool, folder, secret))
        self._state.wakes.changed.set()
        return said(f"{taken} bytes receipted", {"bytes": taken})

    async def _on_stick(self, work: Callable[[bytes], Awaitable[Result]]) -> Result:
        from uplink_spark.errors import UplinkError

        try:
            return await work(await self._state.workers.in_thread(stick_secret, self._secret_file))
        except UplinkError as exc:
            raise AdminRefused(str(exc)) from exc
        except OSError as exc:
            advice = "mount the stick so that the user of the box may write (mount -o uid=rocketbox,gid=rocketbox)"
            raise AdminRefused(f"the stick: {exc.strerror}; {advice}") from exc

    async def discard(self, question: AdminRequest) -> object:
        from uplink_spark.box.report import gap_rows

        before, reason = question.values.get("before"), question.values.get("reason")
        if not isinstance(before, int) or before < 0 or not isinstance(reason, str) or not reason.strip():
            raise AdminRefused("discard needs a log offset and a reason")
        gaps = await self._uplink.shipper.quota.discard(before, reason)
        rows = gap_rows(gaps, set())
        return said("\n".join(map(_gap_line, rows)) or f"nothing unshipped below {before}", rows)

    async def identity(self, question: AdminRequest) -> object:
        state, lineage = self._state, self._state.source.lineage
        value: dict[str, object] = {
            "box": state.config.box,
            "landing": state.ledger.landing.hex() if state.ledger.landing else None,
            "epochs": [{"epoch": f"{epoch:x}", "from": at} for epoch, at in lineage.epochs],
            "runs": [{"run": f"{run:x}", "from": at} for run, at in lineage.runs[-16:]],
            "express": list(state.config.express),
        }
        if question.values.get("secret"):
            value["secret"] = (await state.workers.in_thread(stick_secret, self._secret_file)).hex()
        epochs = ", ".join(f"{epoch:x} from {at}" for epoch, at in lineage.epochs)
        lines = [f"box      {state.config.box}", f"landing  {value['landing'] or 'none yet'}", f"epochs   {epochs}"]
        lines.append(f"runs     {len(lineage.runs)}, this one from {lineage.runs[-1][1]}")
        lines += [f"secret   {value['secret']}"] if "secret" in value else []
        return said("\n".join(lines), value)


def _folder(question: AdminRequest) -> Path:
    if question.folder is None:
        raise AdminRefused("no folder was passed")
    return question.folder


def _stick_codec(codec: str) -> str:
    from uplink_spark.wire.batch import codec_for

    return codec_for(codec)


def _receipt(seen: Any) -> dict[str, object]:
    at = datetime.fromtimestamp(seen.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {"at": at, "kind": seen.kind, "from": seen.start, "to": seen.end, "shard": seen.shard, "seq": seen.seq}


def _gap_line(row: dict[str, Any]) -> str:
    records = "unknown" if row["records"] is None else row["records"]
    known = "receipted" if row["receipted"] else "not yet receipted"
    place = f"{row['epoch']} {row['from']}..{row['to']}"
    return f"{place}  {row['class']}, {row['reason']}, {records} records, declared {row['declared']}, {known}"
