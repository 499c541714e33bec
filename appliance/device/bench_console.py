"""What the bench's commands share: the fleet secret, progress on a terminal, in a pipe or as JSON, questions."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import trio

from provisioning.errors import ProvisioningError
from provisioning.host import Bench
from uplink_spark.bounds import whole

BAR = 20
REDRAW_S = 0.1


def add_box_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every command that talks to one box takes."""
    parser.add_argument("--port", metavar="PORT", help="serial device or socket://host:port (default: detected)")
    parser.add_argument("--serial", default="", metavar="S", help="only the box with this serial number")
    add_bench_arguments(parser)


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every command that talks to boxes takes."""
    parser.add_argument("--baud", type=whole(50), default=115200, help="initial speed of the line")
    parser.add_argument("--fast", type=whole(50), default=921600, metavar="BAUD", help="speed to try for uploads")
    parser.add_argument("--secret", type=Path, metavar="FILE", help="fleet secret (default: created once per user)")
    parser.add_argument("--owner", default="", metavar="ID", help="name of the owner, written to each box")
    add_output_arguments(parser)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --json, --dry-run and --yes."""
    parser.add_argument("--json", action="store_true", help="one JSON object per line, no progress bar")
    parser.add_argument("--dry-run", action="store_true", help="stop after the plan")
    parser.add_argument("--yes", action="store_true", help="answer every question with yes")


def load_bench(arguments: argparse.Namespace) -> Bench:
    """Return who provisions; without a fleet secret one is made, and kept once it claims a box. Raises E203."""
    path = arguments.secret or Path.home() / ".config/rocketbox/fleet-secret"
    if not path.exists() and arguments.secret is None:
        secret = os.urandom(32)
        keep = partial(keep_secret, path, secret)
        return Bench(secret, arguments.owner, getpass.getuser(), keep=keep, is_kept=False)
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as exc:
        raise ProvisioningError("E203", f"no fleet secret in {path}: 64 hex digits are expected ({exc})") from exc
    if len(secret) != 32:
        raise ProvisioningError("E203", f"the fleet secret in {path} has {len(secret)} bytes, 32 are expected")
    return Bench(secret, arguments.owner, getpass.getuser())


def keep_secret(path: Path, secret: bytes) -> None:
    """Write a new fleet secret down, before the first box obeys it. Raises E203."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and bytes.fromhex(path.read_text().strip()) == secret:
            return  # of an earlier box of this run
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(secret.hex() + "\n")
            out.flush()
            os.fsync(out.fileno())
    except (OSError, ValueError) as exc:
        text = f"the new fleet secret cannot be written to {path} ({exc}): no box was claimed; run the command again"
        raise ProvisioningError("E203", text) from exc
    print(f"new fleet secret in {path}: keep a copy, boxes claimed with it accept no other", file=sys.stderr)


def run_until_interrupted(work: Callable[..., Awaitable[int]], *arguments: object) -> int:
    """Run a command's body. Raises KeyboardInterrupt after Ctrl-C, also where a nursery has wrapped it."""
    try:
        return trio.run(work, *arguments)
    except BaseExceptionGroup as group:
        interrupted, others = group.split(KeyboardInterrupt)
        if interrupted is None or others is not None:
            raise
        raise KeyboardInterrupt from None


class Console:
    """One run's output: lines for a person, bars for a terminal, objects for a program."""

    def __init__(self, *, as_json: bool, yes: bool = False, out: TextIO | None = None) -> None:
        self._json, self._yes, self._out = as_json, yes, sys.stdout if out is None else out
        self._terminal = self._out.isatty() and not as_json
        self._bar_open = False
        self._warned: Counter[str] = Counter()  # since the last step
        self._stage, self._began_s, self._began_at, self._drawn_s, self._tenth = "", 0.0, 0, 0.0, -1

    def say(self, what: str, text: str, **facts: Any) -> None:
        """Tell one step."""
        self._warned.clear()
        if self._json:
            print(json.dumps({"event": what.lower(), "text": text, **facts}, default=str), file=self._out, flush=True)
            return
        self._end_bar()
        print(f" {what:<9} {text}", file=self._out, flush=True)

    def warn(self, text: str) -> None:
        """Tell what went wrong and is being waited for: once, then how often; in a pipe at 10, 100, 1,000 times."""
        self._warned[text] += 1
        count = self._warned[text]
        if self._terminal and count > 1:
            print(f"\r ! {text} ({count} times)\x1b[K", end="", file=self._out, flush=True)
            self._bar_open = True
            return
        if count > 1 and str(count).strip("0") != "1":
            return
        if self._json:
            fact = {"event": "warning", "text": text, "count": count}
            print(json.dumps(fact), file=self._out, flush=True)
            return
        self._end_bar()
        print(f" ! {text}" + (f" ({count} times)" if count > 1 else ""), file=self._out, flush=True)

    def fail(self, error: ProvisioningError) -> int:
        """Tell an error, return the exit status that belongs to it."""
        if self._json:
            self.say("error", error.text, code=error.code, facts=error.facts)
        else:
            self._end_bar()
            print(f"rocketbox: {error}", file=sys.stderr)
        return error.exit_status

    def ask(self, question: str) -> bool:
        """Return the answer; without a terminal nobody can agree."""
        if self._yes:
            return True
        if self._json or not sys.stdin.isatty():
            return False
        self._end_bar()
        return input(f" {question} [y/N] ").strip().lower() in ("y", "yes")

    def show(self, stage: str, done: int, total: int) -> None:
        """Tell progress: a bar, a line per tenth, or an object per tenth."""
        now_s = time.monotonic()
        if stage != self._stage:
            self._end_bar()
            self._stage, self._began_s, self._began_at, self._tenth = stage, now_s, done, -1
        share = done / total if total else 0.0
        if self._terminal:
            if now_s - self._drawn_s >= REDRAW_S or done == total:
                self._drawn_s, self._bar_open = now_s, True
                print(f"\r {self._line(stage, done, total, now_s)}\x1b[K", end="", file=self._out, flush=True)
        elif total and int(share * 10) > self._tenth:
            self._tenth = int(share * 10)
            if self._json:
                self.say("progress", stage, done=done, total=total)
            else:
                print(f" {stage:<9} {share:4.0%}  {done}/{total}", file=self._out, flush=True)

    def _line(self, stage: str, done: int, total: int, now_s: float) -> str:
        share = done / total if total else 0.0
        full = int(share * BAR)
        rate = (done - self._began_at) / max(now_s - self._began_s, 1e-3)
        left_s = (total - done) / rate if rate > 0 else 0
        amount = f"{done / 1e6:.1f}/{total / 1e6:.1f} MB" if total > 10_000 else f"{done}/{total}"
        speed = f"{rate / 1e3:.0f} kB/s  {int(left_s) // 60}:{int(left_s) % 60:02d} left" if total > 10_000 else ""
        return f"{stage:<9} {'█' * full}{'░' * (BAR - full)} {share:4.0%}  {amount}  {speed}"

    def _end_bar(self) -> None:
        if self._bar_open:
            self._bar_open = False
            print(file=self._out, flush=True)
