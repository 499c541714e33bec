"""Numbers on command lines: `type=` of an argparse option that names what is allowed when it is not given that."""

import argparse
from collections.abc import Callable
from math import isfinite


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


PORT = whole(0, 65535)
