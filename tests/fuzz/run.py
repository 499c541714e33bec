"""Coverage-guided fuzzing of one parser or of all in turn: `python tests/fuzz/run.py [--minutes 30] [--parser NAME]`.

An input that raises something else than a refusal, or that costs more than its row of docs/threat-model.md, ends the
run; it is left in tests/fuzz/corpus, where `make test` tries it from then on.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["netstack", "appliance", "storage_driver", "uplink_spark", "provisioning"]):
    from tests.costs import peak, steps
    from tests.fuzz.parsers import PARSERS, Parser, corpus_of, outcome

LONGEST = 64 << 10  # of an input: longer ones are in the rows
SLOWEST = 20  # seconds for one input: a pattern or a set of numbers that goes wrong is one call, however long it takes
COUNTED = 8  # instrumented code calls a counter at every branch: so many steps for one
SEEDS = 40  # of the worst inputs of a row


def named(name: str) -> Parser:
    return next(row for row in PARSERS if row.name == name)


def fuzz(parser: Parser, seconds: int, work: Path) -> None:
    """Fuzz one parser in this process; ends with the process."""
    seeds = work / "seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(parser.worst()):
        if len(data) <= LONGEST and number < SEEDS:
            (seeds / f"{number}").write_bytes(data)

    deadline = time.monotonic() + seconds

    def one(data: bytes) -> None:
        if time.monotonic() > deadline:
            os._exit(0)  # libFuzzer takes the end of its own time for a crash while a call is counted
        with steps() as taken, peak() as most:
            outcome(parser, data)
        if taken() > COUNTED * parser.most_steps or most() > 2 * parser.most_bytes:
            raise AssertionError(f"{parser.name}: {taken()} steps, {most()} bytes for {len(data)}")

    found = corpus_of(parser)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST}",
        f"-timeout={SLOWEST}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=0",
    ]
    atheris.Setup([sys.argv[0], *options, "-verbosity=0", str(work), str(seeds), str(found)], one)
    atheris.Fuzz()


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--minutes", type=float, default=30.0, help="for all parsers together (default: 30)")
    asked.add_argument("--parser", help="only this one, in this process")
    asked.add_argument("--work", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")) / "rocketbox-fuzz")
    given = asked.parse_args()
    if given.parser:
        fuzz(named(given.parser), int(given.minutes * 60), given.work / given.parser.replace(" ", "-"))
        return 0
    failed = []
    for row in PARSERS:
        own = ["--minutes", f"{given.minutes / len(PARSERS)}", "--parser", row.name, "--work", str(given.work)]
        done = subprocess.run([sys.executable, __file__, *own], check=False, capture_output=True, text=True)
        print(f"{row.name}: {'ok' if done.returncode == 0 else 'FOUND SOMETHING'}", flush=True)
        if done.returncode:
            print((done.stdout + done.stderr)[-3000:])
            failed.append(row.name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
