"""Runs what manages the two root partitions with the system's Python; its modules lie in lib/ beside this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from provisioning.root_slots import main

sys.exit(main(sys.argv[1:]))
