"""The core and its simulation, compiled by mypyc: a seed plays as in pure Python, in a fraction of the time.

`python -m tests.group_sim.compiled` makes the library in `.build/group-sim`, unless it fits the sources. With
GROUP_SIM_COMPILED=1 what is imported after this module comes from there. Tests, as those of the mutations, change
functions of the core while they run, which compiled callers do not see: they stay pure Python.
"""

import json
import os
import subprocess
import sys
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from appliance.compiled import CompiledModules

TOP: Final = Path(__file__).resolve().parents[2]
OUT: Final = TOP / ".build/group-sim"
LIBRARY: Final = OUT / f"rocketbox{EXTENSION_SUFFIXES[0]}"
SIMULATION: Final = ("faults", "invariants", "records", "schedules", "sim_disk", "sim_member", "world")
NAMES: Final = {"tests.group_sim.records"}  # mypyc takes no exception that inherits from AssertionError


def sources() -> list[Path]:
    """Return the sources of the core and of the simulation."""
    core = sorted((TOP / "storage_driver/consensus").glob("[a-z]*.py"))
    return [*core, *(TOP / f"tests/group_sim/{name}.py" for name in SIMULATION)]


def digest() -> str:
    """Return what stands for the contents of the sources: a result is of one digest."""
    return sha256(b"".join(sha256(path.read_bytes()).digest() for path in sources())).hexdigest()[:16]


def modules() -> list[str]:
    """Return the modules that are compiled: all but those that only name what others make."""
    names = [".".join(path.relative_to(TOP).with_suffix("").parts) for path in sources()]
    return [name for name in names if name not in NAMES]


def fits() -> bool:
    """Whether the library is made of the sources as they are."""
    try:
        told = json.loads(LIBRARY.with_suffix(".json").read_bytes())
    except FileNotFoundError:
        return False
    return LIBRARY.exists() and (told["modules"], told.get("of")) == (modules(), digest())


def build() -> None:
    """Compile, unless that is done."""
    if not fits():
        words = [sys.executable, "systemd/compiled/build.py", str(OUT), "--modules", *modules()]
        subprocess.run(words, cwd=TOP, check=True)
        if LIBRARY.exists():
            told = LIBRARY.with_suffix(".json")
            told.write_text(json.dumps({**json.loads(told.read_bytes()), "of": digest()}))


FINDER: Final = CompiledModules(LIBRARY, modules())

if __name__ == "__main__":
    build()
elif os.environ.get("GROUP_SIM_COMPILED") == "1" and fits():
    sys.meta_path.insert(0, FINDER)
