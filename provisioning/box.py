"""What the bench may do to a box: plan, apply, verify, own, reset. Files below one root, the rest is handed in."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cbor2

from provisioning.box_files import AddressRight, BoxFiles, network_unit, write_file
from provisioning.bundle import (
    START,
    InstallOptions,
    Manifest,
    Target,
    check_fits,
    check_parts,
    extract_part,
    head_bytes,
    open_bundle,
)
from provisioning.errors import ProvisioningError
from provisioning.incoming import arrived
from provisioning.ownership import SECRET_BYTES, receipt_mac
from provisioning.slots import NO_SLOTS, SlotError

Progress = Callable[[str, int, int], None]
KEY_NAME = re.compile(r"(?:[\w-][\w.-]{0,63}/)?[\w-][\w.-]{0,63}")  # in the folder of keys, or one folder below
MAX_INLINE = 6 * 1024  # configuration and keys travel inside one frame


def nothing(*arguments: object) -> None:
    """Do nothing: the hand of a box that is only a folder."""


@dataclass(frozen=True, slots=True)
class DeviceActions:
    """What reaches beyond files; the box's command line hands in the real ones."""

    check_config: Callable[[str], list[str]] = lambda text: []
    status: Callable[[], Mapping[str, Any]] = lambda: {"state": "ok"}
    doctor: Callable[[], Mapping[str, Any]] = lambda: {"findings": []}
    set_time: Callable[[int], object] = nothing
    network_problem: Callable[[], str] = str  # why a network file would have no effect, empty where it has
    activate: Callable[[Progress], object] = nothing  # run what was applied: slot, restart
    selftest: Callable[[], Mapping[str, Any]] = lambda: {"ok": True, "steps": {}}
    reboot: Callable[[str], object] = nothing
    leave_safe: Callable[[], object] = nothing
    support: Callable[[Path], object] = nothing  # write a support archive to this path, or to the one returned


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` would do; `id` names exactly this request on exactly this state."""

    id: str
    request: Mapping[str, Any]
    changes: list[str] = field(default_factory=list)


class Box:
    """One box; every method blocks and is called from a thread."""

    def __init__(
        self, root: Path, hands: DeviceActions | None = None, *, now_s: Callable[[], float] = time.time
    ) -> None:
        self.files, self.hands, self._now_s = BoxFiles(root), hands or DeviceActions(), now_s
        self.serial = self.files.fact("serial", "unknown")
        self.model = self.files.fact("model", "generic")
        self._plan: Plan | None = None

    def identity(self) -> dict[str, Any]:
        """Return what a box tells anybody."""
        slots, owner = self.files.slots.load(), self.files.load_owner()
        running = self.files.slots.running() or slots.active
        return {
            "serial": self.serial,
            "model": self.model,
            "name": str(self._settings().get("box.name", "")),
            "version": slots.version(running),
            "slot": running,
            "trial": slots.trial is not None,
            "state": str(self.hands.status().get("state", "unknown")),
            "claimed": owner.owner_id if owner else None,
            "uptime_s": int(time.clock_gettime(time.CLOCK_BOOTTIME)),
        }

    def claim(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Write the owner down, once. Raises E202, E203."""
        owner = self.files.load_owner()
        owner_id, secret = arguments.get("owner_id"), arguments.get("secret")
        if not isinstance(owner_id, str) or not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
            raise ProvisioningError("E203", "claim needs owner_id and a secret of 32 bytes")
        if owner is not None:
            raise ProvisioningError("E202", f"the box belongs to {owner.owner_id} already", owner_id=owner.owner_id)
        text = json.dumps({"owner_id": owner_id, "secret": secret.hex()})
        write_file(self.files.owner, text.encode())
        return {"owner_id": owner_id}

    # --- plan, apply, verify

    def plan(self, request: Mapping[str, Any]) -> Plan:
        """Check a request as a whole and list what would change. Changes nothing. Raises E401, E30x."""
        changes: list[str] = []
        if "config" in request:
            changes += self._config_changes(_bytes_of(request, "config"))
            if not AddressRight(self.files.root).fits(_settings_of(request)):
                changes.append("right to move group.address")
        for name, data in _keys_of(request).items():
            path = self._key_path(name)
            if not path.exists() or path.read_bytes() != data:
                changes.append(f"key {name}")
        if "network" in request and self._network_text(request) != _read(self.files.network):
            if problem := self.hands.network_problem():
                raise ProvisioningError("E401", problem)
            changes.append(f"network {_map_of(request, 'network').get('address', 'dhcp')}")
        if request.get("bundle"):
            changes += self._bundle_changes(_map_of(request, "bundle"))
        if "time" in request and abs(int(request["time"]) - self._now_s()) > 2:
            changes.append("clock")
        identity = hashlib.sha256(cbor2.dumps([_timeless(request), changes], canonical=True)).hexdigest()[:16]
        self._plan = Plan(identity, request, changes)
        return self._plan

    def apply(self, plan_id: str, arguments: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
        """Carry the last plan out, each step idempotent, and return the receipt."""
        plan = self._plan
        if plan is None or plan.id != plan_id:
            raise ProvisioningError("E401", "this plan is not the last one made: plan again")
        request, steps = plan.request, 5
        pending = self.files.state / "activate-pending"  # written but not yet running: a cut in between is made good
        if plan.changes:
            write_file(pending, plan.id.encode())
        if "time" in request and "clock" in plan.changes:
            self.hands.set_time(int(request["time"]))
        progress("clock", 1, steps)
        for name, data in _keys_of(request).items():
            self._write_key(self._key_path(name), data)
        progress("keys", 2, steps)
        if "network" in request:
            write_file(self.files.network, self._network_text(request).encode(), mode=0o644)
        if "config" in request and _read(self.files.config) != _bytes_of(request, "config").decode():
            write_file(self.files.config, _bytes_of(request, "config"), mode=0o644)
        if "config" in request:
            AddressRight(self.files.root).write(_settings_of(request))
        progress("configuration", 3, steps)
        if request.get("bundle") and self._bundle_changes(request["bundle"]):
            self.install(request["bundle"], progress)
        progress("bundle", 4, steps)
        if pending.exists():
            self.hands.activate(progress)
            pending.unlink()
        progress("running", 5, steps)
        return self.receipt(arguments)

    def verify(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Read back what a request should have left, then run the self-test. Raises E302, E501."""
        checks = {}
        if "config" in request:
            checks["config"] = _read(self.files.config) == _bytes_of(request, "config").decode()
            checks["unit"] = AddressRight(self.files.root).fits(_settings_of(request))
        for name, data in _keys_of(request).items():
            path = self._key_path(name)
            checks[f"key {name}"] = path.exists() and path.read_bytes() == data
        if "network" in request:
            checks["network"] = _read(self.files.network) == self._network_text(request)
        slots = self.files.slots.load()
        running = self.files.slots.running() or slots.active
        if request.get("bundle"):
            checks["version"] = slots.version(running) == str(_map_of(request, "bundle").get("version"))
            checks["slot"] = self._slot_fits(running)
        wrong = [name for name, fits in checks.items() if not fits]
        if wrong:
            raise ProvisioningError("E302", f"read back differs: {', '.join(wrong)}; apply again", wrong=wrong)
        selftest = dict(self.hands.selftest())
        if not selftest.get("ok"):
            step = str(selftest.get("failed", "unknown step"))
            raise ProvisioningError("E501", f"self-test failed: {step}; run `rocketbox doctor`", step=step)
        return {"checks": sorted(checks), "selftest": selftest, "version": slots.version(running), "slot": running}

    def receipt(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was done to this box, sealed with its secret."""
        owner = self.files.load_owner()
        if owner is None:
            raise ProvisioningError("E201", "the box is unclaimed: run `rocketbox provision`")
        slots = self.files.slots.load()
        running = self.files.slots.running() or slots.active
        receipt = {
            "serial": self.serial,
            "model": self.model,
            "owner_id": owner.owner_id,
            "version": slots.version(running),
            "slot": running,
            "config_sha256": hashlib.sha256((_read(self.files.config) or "").encode()).hexdigest(),
            "settings": {key: json.dumps(value) for key, value in self._settings().items()},
            "row": str(arguments.get("row", "")),
            "user": str(arguments.get("user", "")),
            "time_s": int(arguments.get("time_s", self._now_s())),
        }
        return receipt | {"mac": receipt_mac(owner.secret, receipt)}

    # --- bundles

    def install(self, bundle: Mapping[str, Any], progress: Progress) -> str:
        """Install an uploaded bundle into the idle slot, return the slot. Raises E30x."""
        path = arrived(self.files.incoming, bundle.get("sha256"))
        manifest = self._checked_bundle(path, bundle)
        check_parts(path, manifest)
        app = next((part for part in manifest.parts if part.kind == "app"), None)
        if app is None:
            raise ProvisioningError(
                "E304", f"{manifest.version} has no app part: run `rocketbox update FILE` on the box, or flash the disk"
            )
        archive = path.with_suffix(".app")
        try:
            with archive.open("wb") as out:
                extract_part(path, app, out)
            tries = int(bundle.get("tries", 3))
            return self.files.slots.install(archive, manifest.files, manifest.version, tries=tries, progress=progress)
        except SlotError as exc:
            code = "E306" if "trial" in str(exc) else "E302"
            raise ProvisioningError(code, str(exc)) from exc
        finally:
            archive.unlink(missing_ok=True)

    def commit(self) -> dict[str, Any]:
        try:
            state = self.files.slots.commit()
        except SlotError as exc:
            raise ProvisioningError("E306", str(exc)) from exc
        return {"slot": state.active, "version": state.version(state.active)}

    def roll_back(self, reason: str) -> dict[str, Any]:
        state = self.files.slots.roll_back(reason)
        return {"slot": state.active, "version": state.version(state.active), "bad": list(state.bad)}

    # --- the end of an ownership

    def release(self) -> None:
        """Forget the owner and his keys; data and configuration stay."""
        self.files.owner.unlink(missing_ok=True)
        shutil.rmtree(self.files.keys, ignore_errors=True)

    def factory_reset(self, *, keep_data: bool) -> None:
        """Forget owner, keys and configuration, and what was stored unless `keep_data`."""
        self.release()
        for path in self.files.config.parent.glob("rocketbox.toml*"):
            path.unlink()
        AddressRight(self.files.root).write({})
        for path in list(self.files.state.iterdir()) if self.files.state.exists() else []:
            if path.name == "store" and keep_data:
                continue
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    # --- parts

    def _settings(self) -> dict[str, Any]:
        try:
            return flatten(tomllib.loads(_read(self.files.config) or ""))
        except tomllib.TOMLDecodeError:
            return {}

    def _config_changes(self, data: bytes) -> list[str]:
        if len(data) > MAX_INLINE:
            raise ProvisioningError("E401", f"the configuration has {len(data)} bytes, at most {MAX_INLINE} fit")
        try:
            text = data.decode()
            wanted = flatten(tomllib.loads(text))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
            raise ProvisioningError("E401", f"the configuration is not TOML: {exc}", errors=[str(exc)]) from exc
        errors = self.hands.check_config(text)
        if errors:
            raise ProvisioningError("E401", "; ".join(errors)[:900], errors=[one[:200] for one in errors[:20]])
        now = self._settings()
        keys = sorted(key for key in wanted.keys() | now.keys() if wanted.get(key) != now.get(key))
        return [f"set {key} = {wanted[key]!r}" if key in wanted else f"{key} back to its default" for key in keys]

    def _bundle_changes(self, bundle: Mapping[str, Any]) -> list[str]:
        slots = self.files.slots.load()
        running = self.files.slots.running() or slots.active
        version, wanted = slots.version(running), str(bundle.get("version", ""))
        if not self.files.slots.folder.is_dir():
            raise ProvisioningError("E302", NO_SLOTS)
        if slots.trial is not None:
            raise ProvisioningError("E306", f"slot {slots.trial} is on trial: commit or roll back first")
        if version == wanted and self._slot_fits(running):
            return []
        path = arrived(self.files.incoming, bundle.get("sha256"))
        if path.exists():
            self._checked_bundle(path, bundle)
        else:
            self._check_head(path.with_name(f"{path.name}.part"), bundle)
        return [f"version {version} → {wanted}"]

    def _check_head(self, part: Path, bundle: Mapping[str, Any]) -> None:
        """Check what arrives as soon as its signature is there; what cannot be trusted is forgotten. Raises E30x."""
        try:
            if part.exists() and (size := part.stat().st_size) >= START and size >= head_bytes(part):
                self._checked_bundle(part, bundle)
        except ProvisioningError as exc:
            if exc.code == "E303":
                part.unlink()
            raise

    def _checked_bundle(self, path: Path, bundle: Mapping[str, Any]) -> Manifest:
        if not path.exists():
            raise ProvisioningError("E303", "the bundle is not on the box: upload it first")
        manifest = open_bundle(path, self.files.trusted_keys)
        slots = self.files.slots.load()
        free = shutil.disk_usage(self.files.incoming).free
        version = slots.version(self.files.slots.running() or slots.active)
        wishes = InstallOptions(downgrade=bool(bundle.get("downgrade")), retry=bool(bundle.get("retry")))
        check_fits(manifest, Target(self.model, version, slots.bad, free), wishes)
        return manifest

    def _slot_fits(self, slot: str) -> bool:
        try:
            self.files.slots.check(slot)
        except SlotError:
            return False
        return True

    def _key_path(self, name: str) -> Path:
        path = self.files.keys / name
        if not KEY_NAME.fullmatch(name):
            raise ProvisioningError("E401", f"{name!r} is not a legal name of a key")
        return path

    def _write_key(self, path: Path, data: bytes) -> None:
        """Write a key that the product may read and nobody else."""
        write_file(path, data)
        if os.geteuid() == 0 and self.files.state.exists():
            product = self.files.state.stat()
            for one in {path, path.parent, self.files.keys}:
                os.chown(one, product.st_uid, product.st_gid)

    def _network_text(self, request: Mapping[str, Any]) -> str:
        return network_unit({str(key): str(value) for key, value in _map_of(request, "network").items()})


def flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of nested tables by dotted key."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def _settings_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a request whose configuration was checked."""
    return flatten(tomllib.loads(_bytes_of(request, "config").decode()))


def _timeless(request: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in request.items() if key != "time"}


def _map_of(request: Mapping[str, Any], name: str) -> Mapping[Any, Any]:
    value = request.get(name, {})
    if not isinstance(value, dict):
        raise ProvisioningError("E401", f"{name} must be a map")
    return value


def _keys_of(request: Mapping[str, Any]) -> dict[str, bytes]:
    keys = _map_of(request, "keys")
    return {str(name): _bytes_of(keys, name) for name in keys}


def _bytes_of(request: Mapping[str, Any], name: str) -> bytes:
    value = request[name]
    if not isinstance(value, bytes):
        raise ProvisioningError("E401", f"{name} must be bytes")
    return value


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
