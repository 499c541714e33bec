"""`rocketbox metrics`: what the running box tells Prometheus, or the page that documents it."""

import argparse
import sys

from appliance.commands.box.status import health_path
from appliance.commands.settings import add_config_arguments
from appliance.metrics.scrape import SOCKET_NAME, scrape

ASK_S = 20.0
EXAMPLE = """examples:
  rocketbox metrics | grep lag
  rocketbox metrics --docs > docs/metrics.md
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog, parser.formatter_class = EXAMPLE, argparse.RawDescriptionHelpFormatter
    add_config_arguments(parser)
    parser.add_argument("--docs", action="store_true", help="print docs/metrics.md instead: the list of all metrics")


def run(arguments: argparse.Namespace) -> int:
    """Print the metrics of the running box."""
    if arguments.docs:
        from appliance.metrics.docs import document

        print(document(), end="")
        return 0
    path = health_path(arguments).with_name(SOCKET_NAME)
    try:
        good, text = scrape(path, ASK_S)
    except OSError as exc:
        step = "is the box running? (systemctl status rocketbox; --data DIR names another)"
        print(f"rocketbox: {path}: {exc.strerror or exc}; {step}", file=sys.stderr)
        return 1
    print(text, end="")
    return 0 if good else 1
