"""One box on the bench, from port to receipt: what `provision`, `flash app` and `fleet apply` have in common."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appliance.commands.box.config import with_value
from appliance.configuration.config import nearest
from appliance.configuration.config_rules import value_from_text
from appliance.configuration.settings import rules
from appliance.configuration.settings_docs import toml_value
from appliance.device.bench_console import Console
from provisioning.bundle import unsigned_manifest
from provisioning.errors import ProvisioningError
from provisioning.flow import DesiredState, ProvisioningResult, provision
from provisioning.host import Bench, BenchConversation, FoundBox, choose_ports, find, keep_trying
from provisioning.port import candidates


async def find_box(arguments: argparse.Namespace, console: Console) -> FoundBox:
    """Return the box that is meant: at --port, else at a known adapter, else where the user agrees to ask."""
    ports = [arguments.port] if arguments.port else choose_ports(candidates(), console.ask)
    return await find(ports, serial=arguments.serial, baud=arguments.baud)


async def provision_box(
    port: str,
    wanted: DesiredState,
    bench: Bench,
    arguments: argparse.Namespace,
    console: Console,
    *,
    serial: str = "",
    quiet: bool = False,
) -> ProvisioningResult:
    """Bring the box at a port to what is wanted, over as many cable pulls as it takes. Raises ProvisioningError."""

    def agree(changes: list[str]) -> bool:
        console.say("Plan", " · ".join(changes) or "nothing changes", changes=changes)
        return not changes or arguments.yes or console.ask("Apply?")

    def tell_claimed() -> None:
        console.say("Claim", f"claimed for {bench.name}")

    async def work(talk: BenchConversation, identity: Mapping[str, Any]) -> ProvisioningResult:
        if not quiet:
            console.say("Box", box_line(identity), **{k: v for k, v in identity.items() if k != "nonce"})
        return await provision(
            *(talk, identity, bench, wanted),
            agree=(lambda changes: True) if quiet else agree,
            claimed=(lambda: None) if quiet else tell_claimed,
            dry_run=arguments.dry_run,
            fast=arguments.fast,
        )

    show = (lambda stage, done, total: None) if quiet else console.show
    return await keep_trying(
        port, work, show=show, baud=arguments.baud, serial=serial, lost=lambda text: console.warn(f"link lost ({text})")
    )


def box_line(identity: Mapping[str, Any]) -> str:
    """Return what a box says about itself, for a person."""
    owner = f"owned by {identity['claimed']}" if identity["claimed"] else "unclaimed"
    name = f" {identity['name']}" if identity.get("name") else ""
    return (
        f"{identity['serial']}{name}, model {identity['model']}, version {identity['version']} "
        f"in slot {identity['slot']}, {owner}, state {identity['state']}"
    )


def bundle_version(path: Path | None) -> str:
    """Return the version of a bundle that is whole; the box checks the signature. Raises E303."""
    if path is None:
        return ""
    try:
        return unsigned_manifest(path).version
    except OSError as exc:
        raise ProvisioningError("E303", f"cannot read {path}: {exc.strerror}") from exc


def render_config(template: Path | None, *, name: str, site: str, settings: Mapping[str, str]) -> bytes | None:
    """Return the configuration of one box: the template with its own values. Raises E401."""
    if template is None and not (name or site or settings):
        return None
    try:
        text = template.read_text(encoding="utf-8") if template else ""
        tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise ProvisioningError("E401", f"{template}: {reason}") from exc
    wanted = dict(settings)
    wanted |= {"box.name": name} if name else {}
    wanted |= {"box.site": site} if site else {}
    known = rules()
    for key, value in wanted.items():
        if key not in known:
            text = f"{key} is not a setting{nearest(key, known) or ': `rocketbox config show` lists all'}"
            raise ProvisioningError("E401", text, errors=[key])
        try:
            text = with_value(text, key, toml_value(value_from_text(known[key], value)))
        except ValueError as exc:
            raise ProvisioningError("E401", f"{key} = {value!r}: {exc}", errors=[str(exc)]) from exc
    return text.encode()
