"""`rocketbox loss`: what of the acknowledged messages is gone, as recoveries found it; 0 none, 1 somebody must know."""

import argparse
import json
import sys
import time
from pathlib import Path

from appliance.commands.settings import as_owner_of, data_folder
from storage_driver.files.disk import RealDisk
from storage_driver.recovery.losses import Loss, Losses, day


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data folder of the box, running or not")
    parser.add_argument(
        "--acknowledge", action="store_true", help="acknowledge the losses: they no longer degrade the box"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per loss")
    parser.set_defaults(config=None)


def run(arguments: argparse.Namespace) -> int:
    """Print the losses, acknowledge them if asked; return the exit code, 2 when that cannot be done."""
    root = data_folder(arguments) / "store"
    losses = Losses(RealDisk(), root)
    try:
        losses.load()
        fresh = {loss.number for loss in losses.unacknowledged()}
        if arguments.acknowledge:
            with as_owner_of(root):
                losses.acknowledge(int(time.time() * 1000))
    except OSError as exc:
        print(f"rocketbox: loss: {exc}", file=sys.stderr)
        return 2
    for loss in losses.found:
        state = "acknowledged" if loss.number not in fresh or arguments.acknowledge else "not acknowledged"
        if arguments.json:
            print(json.dumps(loss.to_json() | {"acknowledged": state == "acknowledged"}))
        else:
            print(describe(loss, state))
    if not losses.found and not arguments.json:
        print("nothing was lost")
    return 1 if fresh and not arguments.acknowledge else 0


def describe(loss: Loss, state: str) -> str:
    """Return a loss as a person reads it."""
    lines = [f"loss {loss.number}, found {day(loss.found_ms)}, {state}", f"  {loss.sentence()}"]
    lines += [f"  {log_offset:>16}  {who}" for who, log_offset in sorted(loss.witnesses.items())]
    lines += [f"  {count:>16}  messages of {topic}, queue {queue_id}" for topic, queue_id, count in loss.queues]
    lines += [f"  {loss.more:>16}  more queues"] * bool(loss.more)
    return "\n".join(lines)
