"""docs/examples/fleet.py as its reader runs it: from a landing zone to a picture."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb


@pytest.mark.slow
def test_the_fleet_ends_in_a_picture_of_every_box_its_loss_and_its_backlog(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "docs/examples"))
    fleet: Any = import_module("fleet")
    target = tmp_path / "fleet.png"
    found = fleet.run(spark, fleet.parse(["--simulate", "--out", str(target), "--seed", "5"]))
    boxes = {f"box-{number}" for number in range(6)}
    assert set(found["traffic"]["box"]) == set(found["vitals"]["box"]) == set(found["coverage"]["box"]) == boxes
    assert list(found["gaps"]["box"]) == ["box-5"]
    late = found["traffic"].query("seconds > 600")  # the backlog of forty minutes
    assert set(late["box"]) == {"box-3"}
    drawn = image.imread(target)
    assert drawn.shape[:2] == (750, 1300)
    found_colors = np.unique((drawn[..., :3] * 255).round().astype(int).reshape(-1, 3), axis=0)
    wanted = [*fleet.COLORS[:6], fleet.STATES["landed"], fleet.STATES["gap"]]  # a line for each box, and both bars
    for color in map(to_rgb, wanted):
        assert (found_colors == (np.array(color) * 255).round()).all(axis=1).any(), color
