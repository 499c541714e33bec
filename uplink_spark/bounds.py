"""Numbers and times on command lines: `type=` of an argparse option that names what is allowed when it gets other."""

import argparse
import re
from collections.abc import Callable
from datetime import date
from math import isfinite

INTERVAL = re.compile(r"(\s*[0-9]+\s+(milli|micro)?(second|minute|hour|day|week)s?\b)+\s*", re.IGNORECASE)


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return what reads a whole number from low to high."""
    allowed = f"a whole number from {low} to {high}" if high is not None else f"a whole number, {low} or more"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"{text!r} is not {allowed}")
        return value

    return read


def amount(*, zero: bool = False) -> Callable[[str], float]:
    """Return what reads a number above zero, or from zero on."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not isfinite(value) or value < 0 or (not value and not zero):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {'from' if zero else 'above'} 0")
        return value

    return read


def factor(low: float, high: float) -> Callable[[str], float]:
    """Return what reads a number from low to high."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")
        return value

    return read


def landed_day(text: str) -> str:
    """Read a day as the folders of a table are named."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day as 2026-11-03") from None


def interval(text: str) -> str:
    """Read an interval as Spark's triggers take it."""
    if INTERVAL.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an interval as '10 seconds' or '2 minutes'")
    return text


PORT = whole(0, 65535)
