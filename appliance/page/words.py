"""Figures as people read them, and curves as SVG paths: plain functions for the templates."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

WIDTH, HEIGHT = 120.0, 28.0  # of a curve, in its own units
PREVIEW_BYTES = 64 << 10
MOST_SET_OUT = 8 * PREVIEW_BYTES  # characters of JSON that is set out


def commands(text: str) -> Markup:
    """Return a sentence with what stands between backticks set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def count(value: float) -> str:
    """Return a number with thin spaces between thousands, or in millions."""
    if abs(value) >= 10_000_000:
        return f"{value / 1e6:.1f} M"
    return f"{value:,.0f}".replace(",", "\u202f")


def rate(value: float) -> str:
    """Return a rate: with decimals while it is small."""
    return count(value) if value >= 100 or value == 0 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def size(value: float) -> str:
    """Return bytes in the largest unit that leaves a digit before the point."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if value >= 10 or units[0] == "B" else f"{value:.1f} {units[0]}"


def span(seconds: float | None) -> str:
    """Return a duration in the unit that matters."""
    if seconds is None:
        return "–"
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            whole, rest = divmod(seconds, unit)
            return f"{whole:.0f} {name}" if whole >= 10 or name == "min" else f"{whole + rest / unit:.1f} {name}"
    return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:.0f} ms"


def moment(time_ms: float) -> str:
    """Return a time of day in UTC; the bare number where a client said what no calendar has."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms:.0f} ms"


def curve(values: Sequence[float | None], *, closed: bool = False, top: float = 0.0) -> str:
    """Return the path of a curve from 0 to `top`, or to the largest value; None is a gap. Closed: to the ground."""
    known = [value for value in values if value is not None]
    top = max(top, *known, 1e-9) if known else 1.0
    step = WIDTH / max(1, len(values))
    path, run = "", list[str]()
    for number, value in enumerate([*values, None]):
        if value is not None:
            run.append(f"{number * step:.1f} {HEIGHT - 1 - (HEIGHT - 3) * value / top:.1f}")
        elif run:
            path += _run(run, number * step, closed=closed)
            run = []
    return path


def _run(points: list[str], end: float, *, closed: bool) -> str:
    """Return one unbroken part of a curve; its last value lasts until `end`."""
    path = "M" + "L".join(points) + f"H{end:.1f}"
    return f"{path}V{HEIGHT:.0f}H{points[0].partition(' ')[0]}Z" if closed else path


def share(value: float) -> str:
    """Return a share in percent."""
    return f"{value * 100:.0f}"


def degrees(value: float) -> str:
    """Return a temperature; 0 is none."""
    return f"{value:.0f} °C" if value else "–"


def body_text(body: bytes, most: int = PREVIEW_BYTES) -> tuple[str, str]:
    """Return what kind of body it is, and the text to show: JSON set out, text as it is, else hexadecimal.

    Looks at the first `most` bytes; a letter that is cut there is left out.
    """
    shown = body[:most]
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(shown, final=len(body) <= most)
    except UnicodeDecodeError:
        return "bytes", hexadecimal(shown[:4096])
    try:
        set_out = _set_out(json.loads(text)) or text
        return "JSON", set_out.encode(errors="backslashreplace").decode()  # half a surrogate pair is no UTF-8
    except (ValueError, RecursionError):
        readable = all(letter.isprintable() or letter in "\r\n\t" for letter in text)
        return ("text", text) if readable else ("bytes", hexadecimal(shown[:4096]))


def _set_out(value: object) -> str:
    """Return JSON with one value a line, "" when that is too long: deep arrays are indented to a thousand times."""
    parts, size = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        size += len(part)
        if size > MOST_SET_OUT:
            return ""
        parts.append(part)
    return "".join(parts)


def hexadecimal(data: bytes) -> str:
    """Return lines of offset, bytes and letters."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        lines.append(f"{at:06x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)
