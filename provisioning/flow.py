"""One box from plugged in to receipt: own, plan, upload, apply, verify. Repeatable from any point."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from provisioning.bundle import head_bytes
from provisioning.errors import ProvisioningError
from provisioning.host import Bench, BenchConversation
from provisioning.ownership import box_secret, receipt_fits


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What a box should be like; empty parts stay as they are."""

    config: bytes | None = None
    keys: Mapping[str, bytes] = field(default_factory=dict)
    network: Mapping[str, str] = field(default_factory=dict)
    bundle: Path | None = None
    version: str = ""
    downgrade: bool = False
    retry: bool = False
    row: str = ""  # of a fleet: the hash that makes a repeated run skip it

    def request(self, bundle_sha256: str, time_s: int) -> dict[str, Any]:
        """Return what `plan` and `verify` are asked."""
        found: dict[str, Any] = {"time": time_s}
        if self.config is not None:
            found["config"] = self.config
        if self.keys:
            found["keys"] = dict(self.keys)
        if self.network:
            found["network"] = dict(self.network)
        if self.bundle is not None:
            found["bundle"] = {"sha256": bundle_sha256, "version": self.version}
            found["bundle"] |= {"downgrade": self.downgrade, "retry": self.retry}
        return found


@dataclass(frozen=True, slots=True)
class ProvisioningResult:
    """What happened to one box; without receipt it was a dry run."""

    serial: str
    owned: str
    changes: list[str]
    receipt: dict[str, Any] | None = None
    verified: dict[str, Any] | None = None


def file_sha256(path: Path) -> str:
    """Return the hash that names a transfer."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


async def provision(
    talk: BenchConversation,
    identity: Mapping[str, Any],
    bench: Bench,
    wanted: DesiredState,
    *,
    agree: Callable[[list[str]], bool] = lambda changes: True,
    claimed: Callable[[], None] = lambda: None,
    dry_run: bool = False,
    fast: int = 0,
    now_s: Callable[[], float] = time.time,
) -> ProvisioningResult:
    """Bring one box to what is wanted; `agree` sees the plan first, before a free box is claimed.

    Raises ProvisioningError.
    """
    claim = [f"claim for {bench.planned_name}"] if identity["claimed"] is None else []
    owned = "would be claimed" if claim else await talk.own(identity, bench)
    sha256 = file_sha256(wanted.bundle) if wanted.bundle else ""
    request = wanted.request(sha256, int(now_s()))
    planned = await talk.request("plan", request)
    changes = [str(change) for change in planned["changes"]]
    if dry_run or not agree(claim + changes):
        return ProvisioningResult(talk.serial, owned, claim + changes)
    if claim:  # the question may have taken longer than a session lasts
        owned = await talk.own(await talk.identify(), bench)
        claimed()
    if wanted.bundle is not None and any(change.startswith("version ") for change in changes):
        await _upload(talk, bench, wanted.bundle, request, fast)
    # A question and an upload take minutes: the clock is set to now, not to then.
    request = {**request, "time": int(now_s())}
    planned = await talk.request("plan", request)
    words = {"plan": planned["plan"], "user": bench.user, "time_s": int(now_s()), "row": wanted.row}
    applied = await talk.request("apply", words)
    verified = await talk.request("verify", request)
    receipt = dict(applied["receipt"])
    if receipt.get("serial") != talk.serial or not receipt_fits(box_secret(bench.fleet_secret, talk.serial), receipt):
        raise ProvisioningError("E203", "the receipt's seal is wrong: this box did not write it")
    await trio.lowlevel.checkpoint()
    return ProvisioningResult(talk.serial, owned, changes, receipt, verified)


async def _upload(talk: BenchConversation, bench: Bench, bundle: Path, request: Mapping[str, Any], fast: int) -> None:
    """Send the bundle, at up to `fast` baud where that is more than now. Raises ProvisioningError.

    Its head goes first, and the box plans with it: what it does not trust or is not for it costs no upload of minutes.
    """
    if fast and fast > talk.line.baud:
        await talk.speed_up(fast)
        await talk.own(await talk.identify(), bench)
    with bundle.open("rb") as source:
        file = request["bundle"]["sha256"], os.fstat(source.fileno()).st_size
        await talk.put("bundle", source, *file, first=head_bytes(bundle))
        await talk.request("plan", request)
        await talk.put("bundle", source, *file)


def save_receipt(folder: Path, receipt: Mapping[str, Any]) -> Path:
    """Keep a receipt as `<serial>.json`, replaced atomically. Raises E401."""
    path = folder / f"{receipt['serial']}.json"
    fresh = path.with_suffix(".new")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(receipt, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        fresh.replace(path)
    except OSError as exc:
        next_step = "the box is provisioned; make --receipts DIR writable and run the same command again"
        raise ProvisioningError("E401", f"the receipt {path} was not saved: {exc.strerror}; {next_step}") from exc
    return path


def load_receipt(folder: Path, serial: str) -> dict[str, Any] | None:
    """Return a kept receipt, None when there is none that can be read."""
    try:
        found = json.loads((folder / f"{serial}.json").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
