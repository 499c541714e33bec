"""`rocketbox top`: the busiest topics and the groups that lag most, again every few seconds."""

import argparse
import sys
from typing import Any

import trio

from appliance.commands.asking import INNER_GROUPS, add_action, add_examples, is_system_topic, rates, run
from appliance.commands.messaging.cluster import OK, print_json
from appliance.commands.messaging.groups import lag_of
from netstack.client.admin import DEAD, RETRY, Admin
from uplink_spark.bounds import amount, whole
from uplink_spark.console import table

__all__ = ["add_arguments", "run"]
EXAMPLES = """  rocketbox top
  rocketbox top --every 5 --count 1 --json
"""
CLEAR = "\033[H\033[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_examples(parser, EXAMPLES)
    parser.add_argument("--every", type=amount(), default=2.0, metavar="S", help="seconds between updates (default: 2)")
    parser.add_argument("--count", type=whole(0), default=0, metavar="N", help="end after N tables (default: Ctrl-C)")
    parser.add_argument("--rows", type=whole(1), default=15, metavar="N", help="rows of each kind (default: 15)")
    add_action(parser, watch)


async def watch(admin: Admin, arguments: argparse.Namespace) -> int:
    """Look, wait, look again, and print the difference."""
    ends, done, lags, shown = await _looked(admin), dict[str, int](), dict[str, int](), 0
    began = trio.current_time()
    done, lags = await _groups(admin)
    while not arguments.count or shown < arguments.count:
        await trio.sleep(max(0.1, arguments.every))
        now_ends, (now_done, lags) = await _looked(admin), await _groups(admin)
        now = trio.current_time()
        topics, groups = rates(ends, now_ends, now - began), rates(done, now_done, now - began)
        _print(topics, now_ends, groups, lags, arguments)
        ends, done, began, shown = now_ends, now_done, now, shown + 1
    return OK


async def _looked(admin: Admin) -> dict[str, int]:
    """Return topic -> messages ever, one question for each topic."""
    names = [
        name for name in await admin.topic_names() if not is_system_topic(name) and not name.startswith((RETRY, DEAD))
    ]
    return {name: sum(each.max_offset for each in (await admin.topic_offsets(name)).values()) for name in names}


async def _groups(admin: Admin) -> tuple[dict[str, int], dict[str, int]]:
    """Return group -> offsets in all, group -> lag."""
    progress = {name: await admin.progress(name) for name in await admin.groups() if not name.startswith(INNER_GROUPS)}
    done = {name: sum(max(0, each.consumer_offset) for each in seen.values()) for name, seen in progress.items()}
    return done, {name: lag_of(seen) for name, seen in progress.items()}


def _print(
    topics: dict[str, float], ends: dict[str, int], groups: dict[str, float], lags: dict[str, int], arguments: Any
) -> None:
    busy = sorted(topics, key=lambda name: (-topics[name], -ends[name], name))[: arguments.rows]
    late = sorted(groups, key=lambda name: (-lags[name], -groups[name], name))[: arguments.rows]
    if arguments.json:
        print_json(
            {
                "topics": [
                    {"topic": name, "in_per_s": round(topics[name], 1), "messages": ends[name]} for name in busy
                ],
                "groups": [{"group": name, "out_per_s": round(groups[name], 1), "lag": lags[name]} for name in late],
            }
        )
        return
    before = CLEAR if sys.stdout.isatty() else ""
    one = table(("TOPIC", "IN/S", "MESSAGES"), [(name, topics[name], ends[name]) for name in busy])
    other = table(("GROUP", "OUT/S", "LAG"), [(name, groups[name], lags[name]) for name in late])
    print(f"{before}{one}\n\n{other}\n", flush=True)
