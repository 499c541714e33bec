"""`sweep`: the pieces of a stick into the landing zone, receipts back onto it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from uplink_spark.commands.gateway import now_ms
from uplink_spark.commands.parts import Subcommand
from uplink_spark.errors import ConfigError, UplinkError
from uplink_spark.wire.stick_files import INDEX, StickRefused, secret_of
from uplink_spark.zone.files import LocalFiles, open_files


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, metavar="DIR")
    parser.add_argument("--landing", required=True)
    parser.add_argument(
        "--secrets", type=Path, metavar="DIR", help="folder with a file <box> for each box: its uplink secret in hex"
    )
    parser.add_argument(
        "--trust", action="append", default=[], metavar="BOX", help="sweep this box without checking the MAC"
    )


def _secret(options: argparse.Namespace, box: str) -> bytes | None:
    if box in options.trust:
        return None
    if options.secrets is None or not (options.secrets / box).exists():
        raise StickRefused(
            f"no secret for box {box}: give --secrets DIR with a file {box} of what `rocketbox uplink identity "
            f"--secret` says on it, or --trust {box}"
        )
    return secret_of(options.secrets, box)


def run(options: argparse.Namespace) -> int:
    from uplink_spark.centre.sweep import sweep_box

    files = open_files(options.landing)
    if not isinstance(files, LocalFiles):
        raise ConfigError(f"{files.root} is in a bucket: put the files of the stick below inbox/ in it, INDEX.mac last")
    folders = sorted(path.parent for path in options.dir.glob(f"*/{INDEX}"))
    if not folders:
        print(f"{options.dir} holds no <box>/{INDEX}", file=sys.stderr)
        return 1
    failed = False
    for folder in folders:
        try:
            swept = sweep_box(Path(files.root), folder, secret=_secret(options, folder.name), now_ms=now_ms)
        except UplinkError as error:
            failed = True
            print(f"{folder.name}: {error}", file=sys.stderr)
            continue
        print(f"{swept.box}: {swept.pieces} pieces, {swept.new} new")
    return 10 if failed else 0


COMMANDS = (
    Subcommand("sweep", "land the pieces of a stick, through the gateway of the zone or without one", _options, run),
)
