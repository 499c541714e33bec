"""Changing a landing zone: retire a box, remove what nobody needs."""

from __future__ import annotations

import argparse
from difflib import get_close_matches

from uplink_spark.bounds import whole
from uplink_spark.centre.certs import check_box_name
from uplink_spark.commands.gateway import now_ms
from uplink_spark.commands.parts import Subcommand, open_zone, print_json
from uplink_spark.errors import ConfigError


def _retire(options: argparse.Namespace) -> int:
    from uplink_spark.centre.zone_files.keeping import open_records

    check_box_name(options.box)
    zone = open_zone(options.landing)
    records = open_records(options.landing, zone.zone.shards)
    known = records.known()
    if options.box not in known:
        near = get_close_matches(options.box, known, 1, 0.0)
        meant = f", did you mean {near[0]}?" if near else ", nor has any"
        raise ConfigError(f"no box {options.box} has connected to {zone.files.root}{meant}")
    records.retire(options.box)
    print(f"box {options.box} is retired: the gateway refuses its next connection; its data stays")
    return 0


def _retire_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("box")
    parser.add_argument("--landing", required=True)


def _clean(options: argparse.Namespace) -> int:
    from uplink_spark.centre.zone_files.keeping import open_keeping
    from uplink_spark.centre.zone_files.retention import plan_removal, remove

    files = open_keeping(options.landing)
    for shard in range(open_zone(options.landing).zone.shards):
        removal = plan_removal(files, shard, options.keep_days, now_ms())
        size = sum(map(files.size, removal.packs))
        if options.json:
            print_json({"shard": shard, "packs": removal.packs, "bytes": size, "manifest_files": removal.files})
        else:
            verb = "would remove" if options.dry_run else "removed"
            holder = f"; slowest consumer: {removal.held_by}" if removal.held_by else ""
            print(f"shard {shard:04x}: {verb} {len(removal.packs)} packs, {size} bytes{holder}")
        if not options.dry_run:
            remove(files, removal)
    return 0


def _clean_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--landing", required=True)
    parser.add_argument("--keep-days", type=whole(0), default=7)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--json", action="store_true")


COMMANDS = (
    Subcommand("retire", "retire a box: the gateway refuses it from now on", _retire_options, _retire),
    Subcommand("clean", "remove old packs that every consumer has read", _clean_options, _clean),
)
