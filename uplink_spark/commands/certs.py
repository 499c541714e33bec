"""`certs`: a CA, the gateway's and a box's certificate in one folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from uplink_spark.bounds import whole
from uplink_spark.centre.certs import (
    LEAF_DAYS,
    check_box,
    check_box_name,
    check_gateway,
    check_member,
    make_box,
    make_ca,
    make_gateway,
    make_member,
)
from uplink_spark.commands.parts import Subcommand


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, required=True, help="folder; an existing CA in it is used again")
    parser.add_argument("--box", action="append", default=[], help="name of a box; may be repeated")
    parser.add_argument(
        "--member", action="append", default=[], metavar="GROUP:MEMBER", help="a box of a group; goes to DIR/MEMBER"
    )
    parser.add_argument("--folders", action="store_true", help="use a folder DIR/BOX also for a single box")
    parser.add_argument("--gateway", metavar="NAME", help="DNS name or address that boxes connect to")
    parser.add_argument("--days", type=whole(1), default=LEAF_DAYS)


def run(options: argparse.Namespace) -> int:
    own = options.folders or len(options.box) > 1
    folders = {box: options.dir / box if own else options.dir for box in options.box}
    for box in folders:
        check_box_name(box)  # before it names a folder
    for box, folder in folders.items():
        check_box(folder, box)
    if options.gateway:
        check_gateway(options.dir, options.gateway)
    members = list(map(check_member, options.member))
    make_ca(options.dir)
    if options.gateway:
        make_gateway(options.dir, options.gateway, options.days)
    for box, folder in folders.items():
        if own:
            folder.mkdir(exist_ok=True)
            (folder / "ca.crt").write_bytes((options.dir / "ca.crt").read_bytes())
        make_box(folder, box, options.days, ca=options.dir)
    for group, member in members:
        folder = options.dir / member
        folder.mkdir(exist_ok=True)
        (folder / "ca.crt").write_bytes((options.dir / "ca.crt").read_bytes())
        make_member(folder, group, member, options.days, ca=options.dir)
    where = " and a folder for each box in it" if own or members else ""
    print(f"certificates in {options.dir}{where}; keep ca.key at the centre; a box needs box.crt, box.key and ca.crt")
    return 0


COMMANDS = (Subcommand("certs", "create certificates for a gateway and its boxes (needs openssl)", _options, run),)
