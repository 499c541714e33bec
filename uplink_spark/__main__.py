"""The commands of the centre: `python -m uplink_spark gateway ...` and its siblings."""

from __future__ import annotations

import argparse
import sys

from uplink_spark.commands import COMMANDS
from uplink_spark.errors import UplinkError

EXTRAS = {"numpy": "gateway", "zstandard": "gateway", "pyarrow": "spark", "pyspark": "spark"}
EXTRAS |= {"boto3": "objectstore", "obstore": "objectstore"}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m uplink_spark", description="The centre of the uplink.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 good, 1 could not, 2 wrong usage, a port that is taken or a missing package, 10 a finding."""
    options = make_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UplinkError as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        step = f"pip install 'rocketbox[{extra}]', or make setup in a checkout"
        print(f"{options.command} needs {error.name}, which is not installed: {step}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except OSError as error:
        print(f"{error.filename or options.command}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
