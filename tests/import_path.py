"""Where programs that tests start import from: as the tests themselves, be that the checkout or an installed wheel."""

import os
from pathlib import Path


def import_path() -> str:
    """Return the PYTHONPATH for a child, of this process or else the checkout."""
    return os.environ.get("PYTHONPATH") or str(Path(__file__).resolve().parents[1])
