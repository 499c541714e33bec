"""Looking at a landing zone: boxes, manifest, gaps, check, lag, export. Nothing is changed."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from typing import Any

from uplink_spark.bounds import whole
from uplink_spark.commands.gateway import now_ms
from uplink_spark.commands.parts import Subcommand, human_age, human_bytes, open_zone, print_json
from uplink_spark.console import print_table
from uplink_spark.wire.batch import gap_range
from uplink_spark.zone.manifest import ManifestEntry

FINDING = 10


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--landing", required=True)
    parser.add_argument("--json", action="store_true")


def _boxes(options: argparse.Namespace) -> int:
    from uplink_spark.centre.fleet import boxes

    rows: list[list[object]] = []
    for facts in boxes(open_zone(options.landing)):
        lag, now = facts.lag(), now_ms()
        seen_s = max(0.0, (now - max(facts.landed_ms, facts.status_ms)) / 1000)
        if options.json:
            print_json(
                {"box": facts.box, "epoch": f"{facts.epoch:x}", "landed_to": facts.landed_end, "lag": lag,
                 "pending": facts.pending_bytes, "last_landed_ms": facts.landed_ms, "gaps": facts.gaps,
                 "last_stored_ms": facts.stored_ms_max, "state": facts.state(now)}
            )  # fmt: skip
            continue
        shown = "-" if lag is None else human_bytes(lag)
        landed, state = human_bytes(facts.landed_end), facts.state(now)
        last = "-" if state == "new" else human_age(seen_s)
        rows.append([facts.box, f"{facts.epoch:x}"[:8], landed, shown, last, facts.gaps, state])
    if not options.json:
        print_table(["BOX", "EPOCH", "LANDED TO", "LAG", "LAST", "GAPS", "STATE"], rows)
    return 0


def _entry_map(shard: int, entry: ManifestEntry) -> dict[str, Any]:
    return asdict(entry) | {"shard": shard, "epoch": f"{entry.epoch:x}"}


def _show(shard: int, entry: ManifestEntry, *, as_json: bool) -> None:
    if as_json:
        print_json(_entry_map(shard, entry))
        return
    where = f"{entry.box} {entry.epoch:x} {entry.start}..{entry.end}"
    print(f"{shard}:{entry.seq} {entry.kind:4} {where} records={entry.records} raw={entry.raw_bytes} {entry.pack}")


def _manifest(options: argparse.Namespace) -> int:
    zone, at = open_zone(options.landing), dict[int, int]()
    while True:
        for log in zone.shards:
            end = log.refresh()
            for entry in log.entries(at.get(log.shard, log.oldest), end):
                _show(log.shard, entry, as_json=options.json)
            at[log.shard] = end
        sys.stdout.flush()
        if not options.follow:
            return 0
        time.sleep(0.5)


def _manifest_options(parser: argparse.ArgumentParser) -> None:
    _options(parser)
    parser.add_argument("--follow", action="store_true", help="follow new entries")


def _gaps(options: argparse.Namespace) -> int:
    from uplink_spark.centre.fleet import all_entries

    rows: list[list[object]] = []
    for shard, entry in all_entries(open_zone(options.landing)):
        if entry.kind not in ("gap", "blob"):
            continue
        gap = entry.gap or {}
        if options.json:
            print_json(_entry_map(shard, entry))
            continue
        records = gap.get("records", "?")
        epoch, start, end = gap_range(gap, entry.epoch, entry.start, entry.end)
        size = human_bytes(end - start)
        rows.append(
            [
                entry.box,
                f"{epoch:x}"[:8],
                start,
                end,
                size,
                gap.get("class"),
                gap.get("reason"),
                records,
            ]
        )
    if not options.json:
        print_table(["BOX", "EPOCH", "FROM", "TO", "SIZE", "CLASS", "REASON", "RECORDS"], rows)
    return 0


def _check(options: argparse.Namespace) -> int:
    from uplink_spark.centre.fleet import check

    damaged = False
    for result in check(open_zone(options.landing), deep=options.deep):
        damaged = damaged or bool(result.findings)
        if options.json:
            print_json(asdict(result) | {"packs": len(result.packs)})
            continue
        hole = "no hole" if not any("a hole" in finding for finding in result.findings) else "holes"
        sha = f"; sha ok {result.sha_ok}, records checked {result.records}" if options.deep else ""
        last = result.end - 1 if result.entries else "-"
        print(
            f"manifest {result.shard:04x}: {result.entries} entries, seq {result.first}..{last}, {hole}; "
            f"{len(result.packs)} packs, {human_bytes(result.stored_bytes)} of {human_bytes(result.raw_bytes)} raw{sha}"
            f", gaps {result.gaps}, marked damaged {result.marked}"
            f"; orphans {len(result.orphans)}; damaged {len(result.findings)}"
        )
        for finding in result.findings:
            print(f"  {finding}")
    return FINDING if damaged else 0


def _check_options(parser: argparse.ArgumentParser) -> None:
    _options(parser)
    parser.add_argument("--deep", action="store_true", help="read and hash every piece, check every record")


def _lag(options: argparse.Namespace) -> int:
    from uplink_spark.centre.fleet import consumers, positions

    zone = open_zone(options.landing)
    known = consumers(zone.files)
    if options.consumer not in known:
        print(f"no consumer {options.consumer}; there are: {', '.join(known) or 'none'}", file=sys.stderr)
        return 1
    at = positions(known[options.consumer])
    rows: list[list[object]] = []
    for shard, end in zone.ends().items():
        seq = at.get(shard, 0)
        waiting = next(iter(zone.shards[shard].entries(seq, end)), None)
        age_s = 0.0 if waiting is None else max(0.0, (now_ms() - waiting.landed_ms) / 1000)
        rows.append([f"{shard:04x}", seq, end, end - seq, human_age(age_s)])
        if options.json:
            print_json({"shard": shard, "at": seq, "end": end, "lag_entries": end - seq, "lag_s": age_s})
    if not options.json:
        print_table(["SHARD", "AT", "END", "ENTRIES", "SINCE"], rows)
    return 0


def _lag_options(parser: argparse.ArgumentParser) -> None:
    _options(parser)
    parser.add_argument("--consumer", required=True)


def _export(options: argparse.Namespace) -> int:
    from uplink_spark.centre.fleet import export_log

    with open(options.out, "wb") if options.out else sys.stdout.buffer as out:
        for part in export_log(open_zone(options.landing), options.box, options.epoch, options.start, options.end):
            out.write(part)
    return 0


def hex_number(text: str) -> int:
    return int(text, 16)


def _export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--landing", required=True)
    parser.add_argument("--box", required=True)
    parser.add_argument("--epoch", type=hex_number, help="in hex (default: the newest)")
    parser.add_argument("--from", dest="start", type=whole(0), required=True, metavar="N")
    parser.add_argument("--to", dest="end", type=whole(0), required=True, metavar="N")
    parser.add_argument("--out", metavar="FILE", help="output file (default: standard output)")


COMMANDS = (
    Subcommand("boxes", "boxes, their lag and since when", _options, _boxes),
    Subcommand("manifest", "the entries of the manifest", _manifest_options, _manifest),
    Subcommand("gaps", "declared losses and damaged ranges", _options, _gaps),
    Subcommand(
        "check", "check the manifest (with --deep every piece); exit code 10 on a finding", _check_options, _check
    ),
    Subcommand("lag", "lag of a consumer", _lag_options, _lag),
    Subcommand("export", "raw log bytes of a box", _export_options, _export),
)
