"""What the commands share: how one is described, tables for people, JSON for programs."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uplink_spark.console import JournalFormatter

if TYPE_CHECKING:  # every help works without numpy
    from uplink_spark.zone.reader import ZoneReader


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand: its name, one line of help, its options, and what it does (the exit code is returned)."""

    name: str
    text: str
    options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]

    def add(self, commands: Any) -> None:
        parser = commands.add_parser(self.name, help=self.text, description=self.text)
        self.options(parser)
        parser.set_defaults(run=self.run)


def open_zone(landing: str) -> ZoneReader:
    """Return a landing zone for reading. Raises LandingError."""
    from uplink_spark.zone.reader import ZoneReader

    return ZoneReader(landing)


def log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JournalFormatter("{}:"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def print_json(value: object) -> None:
    print(json.dumps(value, sort_keys=True, default=str))


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def human_age(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"
