"""What the commands of administration share: an open `Admin`, output for people or programs, near names."""

import argparse
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from appliance.commands.messaging.cluster import (
    FAILED,
    OK,
    add_cluster_arguments,
    open_instance,
    print_json,
    run_command,
)
from appliance.commands.tables import near
from netstack.client import ClientError
from netstack.client.admin import Admin
from uplink_spark.console import print_table

SYSTEM = ("RMQ_SYS_", "SCHEDULE_TOPIC_", "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "rmq_sys_")
INNER_GROUPS = ("CID_", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_", "__MONITOR_CONSUMER", "CLIENT_INNER_")
Action = Callable[[Admin, argparse.Namespace], Awaitable[int]]


class Actions:
    """Verbs of one command: each with its parser, purpose and function; without a verb the first one runs."""

    def __init__(self, parser: argparse.ArgumentParser, examples: str) -> None:
        add_examples(parser, examples)
        self._verbs = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(self, name: str, purpose: str, action: Action) -> argparse.ArgumentParser:
        """Return the parser of a new verb."""
        made = self._verbs.add_parser(name, help=purpose, description=purpose)
        add_action(made, action)
        return made


def add_action(parser: argparse.ArgumentParser, action: Action) -> None:
    """Let `run` do this for the parser's command; add where the cluster is, and --json."""
    parser.set_defaults(act=action)
    add_cluster_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def add_examples(parser: argparse.ArgumentParser, examples: str) -> None:
    """Show examples below the help."""
    parser.epilog, parser.formatter_class = f"examples:\n{examples}", argparse.RawDescriptionHelpFormatter


def run(arguments: argparse.Namespace) -> int:
    """Run the action that was chosen; failures are one line on stderr and exit code 1."""
    return run_command(_act, arguments)


async def _act(arguments: argparse.Namespace) -> int:
    async with open_instance(arguments) as instance:
        return int(await arguments.act(Admin(instance), arguments))


def show(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool) -> int:
    """Print rows: each as JSON with all it holds, or the columns (key -> heading) as a table."""
    found = list(rows)
    if as_json:
        for row in found:
            print_json(row)
    else:
        print_table(list(columns.values()), [[row.get(key) for key in columns] for row in found])
    return OK


def put_done(name: str, done: str, told: str, row: Mapping[str, Any], arguments: argparse.Namespace) -> int:
    """Print what became of a topic or group: a line, or an object with its settings."""
    if arguments.json:
        print_json({"name": name, "done": done, **row})
    else:
        print(f"{name} {done}: {told}")
    return OK


def known(name: str, names: Collection[str], what: str) -> str:
    """Return the name if it is there. Raises ClientError that suggests near ones."""
    if name not in names:
        raise ClientError(f"no {what} {name}{near(name, names)}")
    return name


def legal(name: str, what: str) -> str:
    """Return the name of a topic or group that may come into being. Raises ClientError that says what is allowed."""
    from appliance.broker.tables.groups import MOST_NAME, is_group_name
    from appliance.broker.tables.topics import MAX_NAME, check_topic_name

    if is_group_name(name) if what == "group" else check_topic_name(name) is None:
        return name
    most = MOST_NAME if what == "group" else MAX_NAME
    raise ClientError(
        f"{name!r} cannot be the name of a {what}: letters a-z and A-Z, digits and _ - % | are allowed, "
        f"1 to {most} characters"
    )


def is_system_topic(name: str) -> bool:
    return name.startswith(SYSTEM)


def stamp(ms: int) -> str:
    """Return a time for people, in the zone of who reads; nothing for none, the number for what no calendar has."""
    try:
        return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S") if ms > 0 else ""
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def time_ms(text: str) -> int:
    """Return the milliseconds of `2026-11-21 14:00`, of `15m`, `2h`, `1d` ago, or of epoch milliseconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    try:
        if text[-1:] in units:
            return int((time.time() - float(text[:-1].lstrip("-")) * units[text[-1]]) * 1000)
        return int(text) if text.isdigit() else int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as exc:
        shown = "a time such as 2026-11-21 14:00, or 15m, 2h, 1d for that long ago, or epoch milliseconds"
        raise argparse.ArgumentTypeError(f"{text!r} is not {shown}") from exc


def rates(before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Return how fast each count grew."""
    return {name: (after[name] - before.get(name, after[name])) / max(seconds, 1e-9) for name in after}


__all__: Sequence[str] = (
    "FAILED",
    "OK",
    "Actions",
    "add_action",
    "add_examples",
    "known",
    "legal",
    "put_done",
    "rates",
    "run",
    "show",
    "stamp",
    "time_ms",
)
