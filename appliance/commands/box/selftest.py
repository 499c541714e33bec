"""`rocketbox selftest`: one message through the running box, end to end; exit 0 when all of it worked."""

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import trio

from appliance.access.local_credentials import read_credentials
from appliance.admin import NAME, ask
from appliance.commands.box.status import health_path, running_ports
from appliance.commands.settings import add_config_arguments, chosen_config, data_folder
from appliance.errors import ConfigError
from appliance.health.health_file import read_health
from appliance.interfaces import LOCAL, LOOPBACK
from appliance.selftest import ASK_S, SelfTest

NOT_PASSED = 7
LIMIT_S = 110.0  # the unit ends it after 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_config_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the steps as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run every step; return 0, or 7 when one failed or the configuration cannot be used."""
    data = data_folder(arguments)
    try:
        config = chosen_config(arguments, data, running_ports(arguments))
    except ConfigError as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return NOT_PASSED
    path = health_path(arguments)
    ports, way = (config.listen.broker_port, config.listen.namesrv_port), read_credentials(path.with_name(NAME))
    admin = path.with_name(NAME)
    uplink = partial(ask, admin, "uplink.status", timeout_s=ASK_S) if config.uplink.gateway else None
    test = SelfTest(
        probed_host(config.listen.host),
        *ports,
        lambda: read_health(path),
        way,
        uplink,
        by_key=config.access.mode == "keys",
    )
    if not arguments.json and not path.exists():
        print(f"no box has started here yet: trying for {LIMIT_S:.0f} s (--data DIR names another)", file=sys.stderr)
    result = trio.run(test.run, LIMIT_S)
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, took_s in result["steps"].items():
            print(f"ok      {name:10} {took_s * 1000:.0f} ms")
        if "waits" in result:
            print(f"waits   {result['waits']}")
        if not result["ok"]:
            print(f"failed  {result['failed']}; run `rocketbox doctor`")
    _keep(data, result)
    return 0 if result["ok"] else NOT_PASSED


def probed_host(listened: str) -> str:
    """Return where the ports of this box are, of what it listens at."""
    return LOOPBACK if listened in LOCAL else listened


def _keep(data: Path, result: dict[str, object]) -> None:
    """Leave the result for the serial line and the health file; a full disk must not fail the test itself."""
    try:
        (data / "watchdog").mkdir(parents=True, exist_ok=True)
        (data / "watchdog/selftest.json").write_text(json.dumps({"wall_s": int(time.time()), **result}) + os.linesep)
    except OSError:
        return
