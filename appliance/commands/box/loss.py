"""`rocketbox loss`: what of the acknowledged messages is gone, or damaged on the disk, as far as the box knows.

It returns 0 for none, 1 while somebody must know.
On a member of a group also what its leader had it take back: nobody knows whether that was acknowledged.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from appliance.commands.settings import as_owner_of, data_folder
from storage_driver.errors import StoreRefused
from storage_driver.files.disk import RealDisk
from storage_driver.log.cut_history import CutDone, CutHistory
from storage_driver.recovery.losses import Loss, Losses, day

DISK = "`rocketbox doctor` tells whether the disk wears out (D104)"


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
    losses, cuts = Losses(RealDisk(), root), CutHistory(RealDisk(), root)
    try:
        if not RealDisk().list(root):
            raise StoreRefused(f"{root} does not contain a store; --data DIR names the box's folder")
        losses.load()
        fresh = {loss.number for loss in losses.unacknowledged()}
        taken_back = [cut for cut in cuts.load() if cut.messages and not _is_told(cut, losses.found)]
        new = [cut for cut in cuts.unacknowledged() if cut in taken_back]
        if arguments.acknowledge:
            with as_owner_of(root):
                losses.acknowledge(int(time.time() * 1000))
                cuts.acknowledge(new)
    except PermissionError:
        raise  # told in one line, with what to do
    except (OSError, StoreRefused) as exc:
        print(f"rocketbox: loss: {exc}", file=sys.stderr)
        return 2
    for loss in losses.found:
        state = "acknowledged" if loss.number not in fresh or arguments.acknowledge else "not acknowledged"
        if arguments.json:
            print(json.dumps(loss.to_json() | {"acknowledged": state == "acknowledged"}))
        else:
            print(describe(loss, state))
    for cut in taken_back:
        acknowledged = cut not in new or arguments.acknowledge
        print(_json(cut, acknowledged) if arguments.json else describe_cut(cut, acknowledged))
    if (fresh or new) and arguments.acknowledge and not arguments.json:
        print("`rocketbox status` is without them within half a minute")
    if not losses.found and not taken_back and not arguments.json:
        print("nothing was lost, as far as the log has been read (Scrub in `rocketbox status`)")
    return 1 if (fresh or new) and not arguments.acknowledge else 0


def _is_told(cut: CutDone, losses: Sequence[Loss]) -> bool:
    """Return whether a cut is among the losses: this disk knew that it was acknowledged."""
    return any(start == cut.log_offset and end >= cut.end for loss in losses for start, end in loss.ranges)


def _json(cut: CutDone, acknowledged: bool) -> str:
    return json.dumps({"taken_back": True, **cut._asdict(), "acknowledged": acknowledged})


def describe_cut(cut: CutDone, acknowledged: bool) -> str:
    """Return what was taken back as a person reads it."""
    state = "acknowledged" if acknowledged else "not acknowledged"
    many = "1 message" if cut.messages == 1 else f"{cut.messages} messages"
    return (
        f"taken back {day(cut.at_ms)}, {state}\n  {many}, log offsets {cut.log_offset} to {cut.end}: {cut.reason}\n"
        f"  the leader's log has not these; kept in {', '.join(cut.quarantined) or '-'}: stop this box, "
        "`rocketbox fsck DIR --salvage OUT --quarantine`, send again what is missing"
    )


def describe(loss: Loss, state: str) -> str:
    """Return a loss as a person reads it."""
    lines = [f"loss {loss.number}, found {day(loss.found_ms)}, {state}", f"  {loss.sentence()}"]
    lines += [f"  {log_offset:>16}  {who}" for who, log_offset in sorted(loss.witnesses.items())]
    lines += [f"  {count:>16}  messages of {topic}, queue {queue_id}" for topic, queue_id, count in loss.queues]
    lines += [f"  {loss.more:>16}  more queues"] * bool(loss.more)
    if loss.damaged:
        lines += [f"  the bytes are kept in quarantine/; have these messages sent again. {DISK}"]
    return "\n".join(lines)
