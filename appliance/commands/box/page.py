"""`rocketbox page`: where the status page is, and the token that lets other machines look at it."""

import argparse
import json
import sys

from appliance.access.page_token import new_token, read_token
from appliance.commands.box.status import running_page
from appliance.commands.settings import (
    add_config_arguments,
    as_owner_of,
    chosen_config,
    config_file,
    data_folder,
    no_folder,
)
from appliance.errors import ConfigError
from appliance.interfaces import own_address, read_interfaces
from netstack.serving.addresses import is_loopback

EXAMPLE = """examples:
  rocketbox page --token
  rocketbox page --new-token --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog, parser.formatter_class = EXAMPLE, argparse.RawDescriptionHelpFormatter
    add_config_arguments(parser)
    parser.add_argument("--token", action="store_true", help="print the token too")
    parser.add_argument("--new-token", action="store_true", help="replace the token: the old one is no longer valid")
    parser.add_argument("--json", action="store_true", help="print one object")


def run(arguments: argparse.Namespace) -> int:
    """Print address and token."""
    data = data_folder(arguments)
    if arguments.data is not None and (why := no_folder(data)):
        print(f"rocketbox: page: {why}", file=sys.stderr)
        return 1
    try:
        config = chosen_config(arguments, data)
        with as_owner_of(data):  # the box reads it
            token = new_token(data) if arguments.new_token else read_token(data) if arguments.token else None
    except ConfigError as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return 1
    except OSError as exc:
        step = "pass the folder of the box with --data DIR; run this as root or as the user the box runs as"
        print(f"rocketbox: {data}: {exc.strerror}; {step}", file=sys.stderr)
        return 1
    file = config_file(arguments)
    running = None if file else running_page(arguments)
    host, port = running or (config.page.host, config.page.port)
    url = address(host, port)
    if arguments.json:
        print(json.dumps({"url": url, "token": token}))
        return 0
    off = (
        f"set page.port in {file} and restart the box"
        if file
        else "no configuration file: pass that of the box with --config FILE"
    )
    print(url or f"off: {off}")
    if url and is_loopback(host):
        print('this machine only: page.host = "0.0.0.0" opens it to the network, with the token')
    if token:
        print(f"token {token}")
    return 0


def address(host: str, port: int) -> str | None:
    """Return what to type into a browser, None while the page is off."""
    if not port:
        return None
    shown = "localhost" if is_loopback(host) else own_address(host, read_interfaces)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"
