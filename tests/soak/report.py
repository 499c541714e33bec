"""A soak's result as a table and as plots."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

from tests.soak.history import Fault, History
from tests.soak.samples import Sample, ends, growth

MIB = 1 << 20
MOST_MEMORY_PER_H, MOST_SHORT = 8 * MIB, 16 * MIB  # growth that counts as flat: an hour's slope, and in all
MOST_DESCRIPTORS = 8


@dataclass(frozen=True, slots=True)
class Result:
    """Everything a run found out."""

    seconds: float
    seed: int
    rates: dict[str, float]
    history: History
    samples: Sequence[Sample]
    latencies_ms: Sequence[float]
    cuts: int
    down_s: float
    reconnects: int
    not_upstream: int  # acknowledged messages that are not in the landing zone
    upstream_bytes: int
    drained: bool

    def faults(self) -> list[str]:
        """Return what went wrong, one sentence each."""
        found = [_sentence(fault) for fault in self.history.faults()]
        if self.not_upstream:
            found.append(f"{self.not_upstream} acknowledged messages never arrived upstream")
        if not self.drained:
            found.append(f"not everything was delivered in time: {self.history.waiting()}")
        before, after = ends(self.samples, "memory")
        if growth(self.samples, "memory") * 3600 > MOST_MEMORY_PER_H and after - before > self._allowed():
            found.append(f"memory grew from {before / MIB:.1f} to {after / MIB:.1f} MiB after the warm-up")
        first, last = ends(self.samples, "descriptors")
        if last - first > MOST_DESCRIPTORS:
            found.append(f"descriptors grew from {first:.0f} to {last:.0f} after the warm-up")
        return found

    def _allowed(self) -> float:
        return max(4 * MIB, MOST_SHORT * min(1.0, self.seconds / 3600))


def _sentence(fault: Fault) -> str:
    who = f" to {fault.group}" if fault.group else ""
    return f"{fault.stream}{who}: {fault.count} {fault.what} (such as {fault.example})"


def markdown(result: Result) -> str:
    """Return docs/soak.md."""
    faults = result.faults()
    verdict = "No fault was found." if not faults else "**Faults:**\n\n" + "\n".join(f"* {text}" for text in faults)
    return "\n".join([HEAD, _setting(result), verdict, "", _streams(result), _resources(result), TAIL])


HEAD = """# Soak

Made by `make soak`. It runs everything at once against a box and a gateway for an hour (`MINUTES=10` sets another
duration); each is a process of its own. The load: sync sends, batches, delayed messages, transactions of which a
quarter is rolled back, ordered messages, a slow consumer, group members and producers that come and go, and a link to
the gateway that is cut again and again. At the end, after the consumers had time to catch up and the link was restored,
the test compares what was attempted, acknowledged and delivered, and reads the landing zone back.
"""
TAIL = """
![memory, descriptors, processor](soak-box.png)
![messages, unshipped bytes, lag](soak-load.png)

Before the run 70,000 messages fill the table of remembered sends: its growth would look like a leak. After the first
quarter of a run, memory counts as flat if it grows by less than 8 MiB an hour (the median of the slopes between all
pairs of samples) or by less than 4 MiB in all (16 MiB in an hour), descriptors if they grow by at most 8.

After a broken link the box tries again after 0.1 s, then after twice the time, up to a minute (times 0.5 to 1.5), until
a receipt arrives. On a link that keeps breaking, the log can therefore wait for minutes although the link is up for
part of them: these are the slopes in the curve of unshipped bytes. The box ships all of it afterwards.
"""


def _setting(result: Result) -> str:
    rates = ", ".join(f"{name} {rate:g}" for name, rate in result.rates.items())
    return (
        f"This run: {result.seconds / 60:.1f} minutes, seed {result.seed}, messages a second: {rates}; "
        f"{platform.machine()}, {os.cpu_count()} processors shared with the load and with other work, "
        f"Python {platform.python_version()}.\n"
    )


def _streams(result: Result) -> str:
    lines = [
        "| messages | group | acknowledged | unanswered | delivered | redelivered | lost |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, groups in result.history.groups.items():
        stream = result.history.streams[name]
        for group in groups:
            got = stream.got[group]
            lost = len(stream.missing(group))
            lines.append(
                f"| {name} | {group} | {len(stream.acknowledged):,} | {stream.failures:,} | {len(got):,} | "
                f"{stream.again[group]:,} | {lost} |"
            )
    rolled_back = len(result.history.streams["transaction"].taken_back)
    return "\n".join([*lines, "", f"Rolled back and never delivered: {rolled_back:,}.", ""])


def _resources(result: Result) -> str:
    memory, files = ends(result.samples, "memory"), ends(result.samples, "descriptors")
    last = result.samples[-1]
    cuts = sorted(result.latencies_ms)
    marks = quantiles(cuts, n=1000) if len(cuts) > 1 else [0.0] * 999
    rows = {
        "memory after warm-up → at the end": f"{memory[0] / MIB:.1f} → {memory[1] / MIB:.1f} MiB, "
        f"{growth(result.samples, 'memory') * 3600 / MIB:+.1f} MiB/h",
        "descriptors after warm-up → at the end": f"{files[0]:.0f} → {files[1]:.0f}",
        "processor": f"{100 * last.cpu_s / max(1.0, last.at_s):.0f} % of one",
        "sync send, p50 / p99 / p99.9": f"{marks[499]:.1f} / {marks[989]:.1f} / {marks[998]:.1f} ms",
        "link cut": f"{result.cuts} times, {result.down_s:.0f} s in all",
        "most bytes unshipped": f"{max(sample.unshipped for sample in result.samples) / MIB:.1f} MiB",
        "clients that came and went": f"{result.reconnects}",
        "read back upstream": f"{result.upstream_bytes / MIB:.1f} MiB of log, "
        f"{result.not_upstream} acknowledged messages missing",
    }
    lines = ["| the box | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join(lines)


def plot(result: Result, folder: Path) -> None:
    """Write the two pictures."""
    import matplotlib

    matplotlib.use("Agg")
    looks = result.samples
    minutes = [look.at_s / 60 for look in looks]
    pairs = list(pairwise(looks))

    def rates(name: str) -> list[float]:
        return [(getattr(b, name) - getattr(a, name)) / max(0.1, b.at_s - a.at_s) for a, b in pairs]

    _picture(
        folder / "soak-box.png",
        minutes,
        [
            ("memory, MiB", [("", [look.memory / MIB for look in looks])]),
            ("descriptors", [("", [look.descriptors for look in looks])]),
            ("processor, % of one", [("", [100 * rate for rate in rates("cpu_s")])]),
        ],
    )
    _picture(
        folder / "soak-load.png",
        minutes,
        [
            ("messages/s", [("in", rates("messages_in")), ("out", rates("messages_out"))]),
            ("not shipped, MiB", [("", [look.unshipped / MIB for look in looks])]),
            ("groups behind, messages", [("", [look.behind for look in looks])]),
        ],
    )


def _picture(path: Path, minutes: list[float], rows: list[tuple[str, list[tuple[str, list[float]]]]]) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(rows), 1, sharex=True, figsize=(9, 1.9 * len(rows)), layout="constrained")
    for axis, (name, curves) in zip(axes, rows, strict=True):
        for label, values in curves:
            axis.plot(minutes[-len(values) :], values, linewidth=1.1, label=label or None)
        axis.set_ylabel(name, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        if len(curves) > 1:
            axis.legend(fontsize=8, frameon=False, loc="lower right")
    axes[-1].set_xlabel("minutes", fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def save(result: Result, folder: Path) -> None:
    """Write table, pictures and samples."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.md").write_text(markdown(result))
    plot(result, folder)
