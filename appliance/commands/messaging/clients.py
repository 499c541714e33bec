"""`rocketbox clients`: who is connected, as consumer or producer; 0 also when nobody is."""

import argparse
from typing import Any

from appliance.commands.asking import INNER_GROUPS, add_action, add_examples, run, show, stamp
from netstack.client.admin import Admin
from netstack.wire.versions import version_text

__all__ = ["add_arguments", "run"]
EXAMPLES = """  rocketbox clients
  rocketbox clients --group billing --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_examples(parser, EXAMPLES)
    parser.add_argument("--group", metavar="NAME", help="only this group")
    add_action(parser, list_clients)


async def list_clients(admin: Admin, arguments: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    for group in [arguments.group] if arguments.group else sorted(await admin.groups()):
        members = await admin.members(group)
        for each in members.connection_set if members else ():
            row = {"role": "consumer", "group": group, "client": each.client_id, "address": each.client_addr}
            rows.append({**row, "language": each.language, "version": version_text(each.version), "seen": ""})
    for group, producers in sorted((await admin.producers()).producers.items()):
        if group.startswith(INNER_GROUPS) or arguments.group not in (None, group):
            continue
        for made in producers:
            row = {"role": "producer", "group": group, "client": made.client_id, "address": made.remote_ip}
            seen = {"seen_ms": made.last_update_ms, "seen": stamp(made.last_update_ms)}
            rows.append({**row, "language": made.language, "version": version_text(made.version), **seen})
    heads = {"role": "ROLE", "group": "GROUP", "client": "CLIENT", "address": "ADDRESS"}
    return show(rows, {**heads, "language": "LANGUAGE", "version": "VERSION", "seen": "SEEN"}, as_json=arguments.json)
