"""What each side loads: a box needs neither numpy nor pyspark nor pyarrow, a gateway no pyspark and no pyarrow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BOX = "box.shipper box.stick box.report"
GATEWAY = "centre.gateway centre.metrics centre.zone_files.objects centre.sweep commands"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "absent"),
    [(BOX, "numpy pyspark pyarrow pandas boto3 obstore"), (GATEWAY, "pyspark pyarrow pandas boto3 obstore")],
)
def test_a_side_loads_only_what_it_needs(modules: str, absent: str) -> None:
    program = f"""
import importlib, sys
for name in {modules!r}.split():
    importlib.import_module("uplink_spark." + name)
print(sorted(set({absent!r}.split()) & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[]"
