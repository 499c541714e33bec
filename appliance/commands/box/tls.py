"""`rocketbox tls show|make`: the certificate the box presents at its two ports; 0 good, 1 not done, 3 none there."""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from appliance.access.certificate import CertificateError, fingerprint, make_certificate
from appliance.access.guard import own_addresses, tls_files
from appliance.commands.settings import add_config_arguments, as_owner_of, chosen_config, data_folder
from appliance.commands.tables import confirmed
from appliance.errors import ConfigError
from netstack.serving.tls import not_after_ms

DONE, NOT_DONE, NONE = 0, 1, 3
DAY_MS = 86_400_000
EXAMPLE = """examples:
  rocketbox tls show                    fingerprint and last day
  sudo rocketbox tls make --yes         a new certificate, in use within half a minute (the first: at the next start)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog, parser.formatter_class = EXAMPLE, argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show", help="print fingerprint and last day", description="the certificate that clients see"
    )
    show.add_argument("--json", action="store_true", help="print JSON")
    make = actions.add_parser("make", help="create a new certificate and key", description="replaces the existing ones")
    make.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    for each in (show, make):
        add_config_arguments(each)


def run(arguments: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    try:
        data = data_folder(arguments)
        config = chosen_config(arguments, data)
        cert, key = tls_files(config, data)
        if arguments.action == "show":
            return show(cert, as_json=arguments.json)
        if config.tls.cert:
            print(f"rocketbox: tls.cert names {cert}: put the new files there, the box loads them", file=sys.stderr)
            return NOT_DONE
        if cert.exists() and not confirmed(
            "Clients that pinned the certificate will refuse the new one.", arguments.yes
        ):
            return NOT_DONE
        with as_owner_of(data):
            make_certificate(cert, key, config.box.name, own_addresses(), now=datetime.now(UTC))
        return show(cert, as_json=False)
    except (CertificateError, ConfigError) as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
    except OSError as exc:
        step = "run this as root or as the user the box runs as"
        print(f"rocketbox: {exc.filename}: {exc.strerror}; {step}", file=sys.stderr)
    return NOT_DONE


def show(cert: Path, *, as_json: bool) -> int:
    """Print what a client can compare."""
    if not cert.exists():
        print(f"rocketbox: no certificate at {cert}: `rocketbox tls make`", file=sys.stderr)
        return NONE
    try:
        ends_ms, print_ = not_after_ms(cert.read_text()), fingerprint(cert)
    except ValueError as exc:
        print(f"rocketbox: {cert}: {exc}", file=sys.stderr)
        return NOT_DONE
    days = (ends_ms - time.time_ns() // 1_000_000) // DAY_MS
    if as_json:
        print(json.dumps({"path": str(cert), "sha256": print_, "not_after_ms": ends_ms, "days_left": days}))
    else:
        last = datetime.fromtimestamp(ends_ms / 1000, UTC)
        print(f"file         {cert}\nSHA-256      {print_}\nlast day     {last:%Y-%m-%d} ({days} days left)")
    return DONE
