"""Labels for boxes: a CSV file for a label printer, and one page of stickers with QR codes for any other."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable
from dataclasses import dataclass

from provisioning.errors import ProvisioningError

COLUMNS = ("serial", "name", "site", "address", "version", "owner_id")


@dataclass(frozen=True, slots=True)
class Label:
    """What stands on one sticker."""

    serial: str
    name: str
    site: str
    address: str
    version: str
    owner_id: str

    @property
    def code(self) -> str:
        """Return what the QR code says: enough to find the box, nothing secret."""
        return f"rocketbox:{self.serial}?name={self.name}"


def labels_csv(labels: Iterable[Label]) -> str:
    """Return the labels as CSV with a header."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([getattr(label, name) for name in COLUMNS] for label in labels)
    return out.getvalue()


def labels_page(labels: Iterable[Label]) -> str:
    """Return a printable HTML page, 3 × 8 stickers of 70 × 36 mm. Raises E304 when the QR library is missing."""
    stickers = "\n".join(_sticker(label) for label in labels)
    return f"""<!doctype html><meta charset="utf-8"><title>Rocketbox labels</title>
<style>@page {{ size: A4; margin: 4.5mm 0 }} body {{ margin: 0; font: 9pt sans-serif }}
main {{ display: grid; grid-template-columns: repeat(3, 70mm); grid-auto-rows: 36mm }}
div {{ display: flex; align-items: center; gap: 3mm; padding: 3mm; break-inside: avoid; box-sizing: border-box }}
svg {{ width: 26mm; height: 26mm; flex: none }} b {{ font-size: 12pt }}</style>
<main>
{stickers}
</main>
"""


def _sticker(label: Label) -> str:
    lines = [
        f"<b>{html.escape(label.name)}</b>",
        *(html.escape(one) for one in (label.serial, label.site, label.address) if one),
    ]
    return f"<div>{_qr(label.code)}<span>{'<br>'.join(lines)}</span></div>"


def _qr(text: str) -> str:
    try:
        import segno  # type: ignore[import-not-found, unused-ignore]
    except ImportError as exc:
        raise ProvisioningError("E304", "QR codes need the library segno on the bench: `pip install segno`") from exc
    return str(segno.make(text, error="m").svg_inline(border=1))
