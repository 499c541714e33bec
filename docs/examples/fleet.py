# %% [markdown]
# # A fleet in one picture
# From a landing zone to a plot: bronze (every record once), silver (figures per minute), gaps and coverage.
#
#     python docs/examples/fleet.py --simulate                   a made-up fleet of six boxes, two hours
#     python docs/examples/fleet.py --landing var/landing        your own; --vital is a path into the JSON body

# %%
"""Bring a landing zone into tables and draw the fleet: messages, a vital, latency, coverage."""

import argparse
import json
import math
import random
import tempfile
import time
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from uplink_spark.jobs import tables
from uplink_spark.jobs.bronze import BronzeConfig, run_bronze
from uplink_spark.jobs.session import open_session
from uplink_spark.jobs.silver import take_in
from uplink_spark.testing import MadeLanding, MadeRecord, gap_piece, log_piece
from uplink_spark.wire.batch import PieceSource

COLORS = plt.rcParams["axes.prop_cycle"].by_key()["color"]
STATES = {"landed": "#4c956c", "gap": "#d1495b", "pending": "#f2c14e"}
MINUTES = 120


# %% [markdown]
# ## A made-up fleet
# Box 3 is offline for forty minutes and ships its backlog afterwards; box 5 loses a range and declares it.


# %%
def simulate(root: Path, seed: int) -> None:
    """Land two hours of a fleet through the real writer; pieces land in the order of their landing time."""
    dice, now_ms = random.Random(seed), time.time_ns() // 1_000_000
    begun = now_ms - MINUTES * 60_000
    arriving: list[tuple[int, int, Any]] = []
    for number in range(6):
        source = PieceSource(f"box-{number}", 1 + number, 7, 0, begun, 1)
        at = 0
        for minute in range(MINUTES):
            first_ms = begun + minute * 60_000
            landed_ms = first_ms + 60_000 + dice.randrange(200, 3000)
            if number == 3 and 50 <= minute < 90:
                landed_ms = begun + 90 * 60_000 + (minute - 50) * 9_000
            made = [_vital(number, minute, first_ms, dice) for _ in range(dice.randrange(20, 40) * (1 + number))]
            piece = log_piece(made, at, source=source)
            lost = number == 5 and 70 <= minute < 85
            if lost:
                gap: dict[str, object] = {"class": "missing", "reason": "quota_bytes", "records": len(made)}
                arriving.append((landed_ms, at, gap_piece(at, piece[0].end, gap, source=source)))
            else:
                arriving.append((landed_ms, at, piece))
            at = piece[0].end
    landing = MadeLanding(root)
    in_order = sorted(arriving, key=lambda found: found[:2])
    for _, together in groupby(in_order, key=lambda found: found[0] // 5000):  # a commit takes what waits
        found = list(together)
        landing.land(*(piece for _, _, piece in found), now_ms=found[-1][0])
    landing.close()


def _vital(number: int, minute: int, first_ms: int, dice: random.Random) -> MadeRecord:
    celsius = 45 + 3 * number + 9 * math.sin((minute + 20 * number) / 19) + dice.gauss(0, 0.8)
    stored_ms = first_ms + dice.randrange(60_000)
    body = json.dumps({"cpu": {"celsius": round(celsius, 1)}}).encode()
    born_ms = stored_ms - dice.randrange(1, 9)
    return MadeRecord("Vitals", 0, minute, body, "TAGS\x01cpu", born_ms=born_ms, stored_ms=stored_ms)


# %% [markdown]
# ## Tables
# Both steps may be repeated at will: bronze goes on where its newest commit ends, silver where its own does.


# %%
def bring_in(spark: SparkSession, landing: str, folder: Path) -> tuple[str, str]:
    """Bring everything that has landed into bronze and silver and return the two folders."""
    bronze, silver = str(folder / "bronze"), str(folder / "silver")
    run_bronze(spark, BronzeConfig(landing, bronze, f"{bronze}/_spark"), once=True)
    take_in(spark, bronze, silver)
    return bronze, silver


# %% [markdown]
# ## What to draw
# Plain DataFrames; `toPandas` only after Spark has aggregated.


# %%
def frames(spark: SparkSession, bronze: str, silver: str, vital: str) -> dict[str, Any]:
    """Return the four small tables behind the plot."""
    minutes = tables.per_minute(spark, silver).groupBy("box", "minute")
    traffic = minutes.agg(
        F.sum("rows").alias("rows"),
        (F.sum("store_landed_ms_sum") / F.greatest(F.lit(1), F.sum("latency_rows")) / 1000).alias("seconds"),
    )
    number = F.get_json_object(F.col("body").cast("string"), f"$.{vital}").cast("double")
    measured = tables.messages(spark, bronze).select(
        "box", F.date_trunc("minute", "store_time").alias("minute"), number.alias("v")
    )
    vitals = measured.where("v IS NOT NULL").groupBy("box", "minute").agg(F.avg("v").alias("v"))
    return {
        "traffic": traffic.orderBy("box", "minute").toPandas(),
        "vitals": vitals.orderBy("box", "minute").toPandas(),
        "coverage": tables.coverage(spark, bronze).orderBy("box", "epoch", "from_offset").toPandas(),
        "gaps": tables.gaps(spark, bronze).groupBy("box", "class").agg(F.sum("records").alias("records")).toPandas(),
    }


# %%
def draw(found: dict[str, Any], vital: str, target: Path) -> None:
    """Draw the four tables as one PNG."""
    figure, ((rate, value), (latency, cover)) = plt.subplots(2, 2, figsize=(13, 7.5), constrained_layout=True)
    boxes = sorted(set(found["traffic"]["box"]) | set(found["coverage"]["box"]))
    color = {box: COLORS[n % len(COLORS)] for n, box in enumerate(boxes)}
    _lines(rate, found["traffic"], "rows", color, "messages per minute (store time)")
    _lines(value, found["vitals"], "v", color, f"{vital}, average per minute")
    _lines(latency, found["traffic"], "seconds", color, "store → centre, seconds (average, log scale)")
    latency.set_yscale("log")
    _bars(cover, found["coverage"], boxes)
    rate.set_ylim(0, 1.35 * max(found["traffic"]["rows"], default=1))
    rate.legend(boxes, fontsize=8, ncols=6, loc="upper center")
    lost = int(found["gaps"]["records"].sum()) if len(found["gaps"]) else 0
    rows = int(found["traffic"]["rows"].sum())
    drawn = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    figure.suptitle(f"{len(boxes)} boxes, {rows:,} messages, {lost:,} declared lost ({drawn})")
    figure.savefig(target, dpi=100)
    plt.close(figure)


def _lines(axes: Any, table: Any, column: str, color: dict[str, str], title: str) -> None:
    for box, rows in table.dropna(subset="minute").groupby("box"):
        line = rows.set_index("minute")[column].asfreq("min")  # no line across minutes without messages
        axes.plot(line.index, line.values, color=color[box], linewidth=1.2)
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)


def _bars(axes: Any, table: Any, boxes: list[str]) -> None:
    for row in table.itertuples():
        width = (row.to_offset - row.from_offset) / 1e6
        axes.barh(boxes.index(row.box), width, left=row.from_offset / 1e6, color=STATES[row.state], height=0.6)
    axes.set_yticks(range(len(boxes)), boxes)
    axes.set_xlabel("log offset, MB")
    axes.set_title("coverage of each box's log", fontsize=10)
    axes.legend([plt.Rectangle((0, 0), 1, 1, color=shade) for shade in STATES.values()], list(STATES), fontsize=8)


# %%
def parse(words: list[str] | None = None) -> argparse.Namespace:
    asked = argparse.ArgumentParser(description=__doc__)
    which = asked.add_mutually_exclusive_group(required=True)
    which.add_argument("--landing", help="folder of the landing zone")
    which.add_argument("--simulate", action="store_true", help="simulate a fleet")
    asked.add_argument("--tables", type=Path, help="where bronze and silver go (default: a temporary folder)")
    asked.add_argument("--vital", default="cpu.celsius", help="path into the JSON body (cpu.celsius)")
    asked.add_argument("--out", type=Path, default=Path("fleet.png"), help="the plot (fleet.png)")
    asked.add_argument("--seed", type=int, default=11, help="seed of the simulated fleet (11)")
    return asked.parse_args(words)


# %%
def run(spark: SparkSession, given: argparse.Namespace) -> dict[str, Any]:
    """Draw the plot and return the tables behind it."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        landing = given.landing or f"{folder}/landing"
        if given.simulate:
            simulate(Path(landing), given.seed)
        bronze, silver = bring_in(spark, landing, given.tables or Path(folder))
        found = frames(spark, bronze, silver, given.vital)
    draw(found, given.vital, given.out)
    print(f"{given.out}: {int(found['traffic']['rows'].sum()):,} messages of {found['traffic']['box'].nunique()} boxes")
    return found


if __name__ == "__main__":
    asked_for = parse()
    session = open_session("fleet")
    run(session, asked_for)
    session.stop()
