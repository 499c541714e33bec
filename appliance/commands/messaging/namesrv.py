"""`rocketbox namesrv -c FILE [-p]`: read a name server configuration written for Apache's.

The name server runs inside `rocketbox serve`; this shows what a file means for it, as TOML or, with -p, as
`mqnamesrv -p` prints it. Keys without a meaning here are named on stderr.
"""

import argparse
import sys
from pathlib import Path

from appliance.commands.settings import data_folder, machine_facts
from appliance.configuration.config import Config, load_config
from appliance.configuration.config_rules import value_from_text
from appliance.configuration.settings import rules
from appliance.errors import ConfigError, ConfigProblem
from appliance.namesrv.apache_config import ApacheFile, namesrv_options, read_apache
from netstack.wire.bodies_route import properties_text, read_properties

WRONG_CONFIG = 78
MISSING_FILE = 255  # as mqnamesrv exits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line: the four options of mqnamesrv."""
    parser.add_argument("-c", "--configFile", type=Path, metavar="FILE", help="properties file, key=value")
    parser.add_argument("-p", "--printConfigItem", action="store_true", help="print all options and exit")
    parser.add_argument("-n", "--namesrvAddr", metavar="ADDR", help="ignored, as in mqnamesrv")
    parser.set_defaults(data=None, config=None)


def run(arguments: argparse.Namespace) -> int:
    """Print what the file means; return the exit code."""
    try:
        found = _read(arguments.configFile)
        config = load_config(
            source=str(arguments.configFile), facts=machine_facts(data_folder(arguments)), command_line=_values(found)
        )
    except FileNotFoundError as exc:
        print(f"rocketbox: {exc.filename}: no such file; pass one with -c", file=sys.stderr)
        return MISSING_FILE
    except OSError as exc:
        print(f"rocketbox: {exc.filename}: {exc.strerror}", file=sys.stderr)
        return WRONG_CONFIG
    except ConfigError as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return WRONG_CONFIG
    print(_shown(config) if arguments.printConfigItem else _as_toml(found), end="")
    for what, keys in (("has no effect here", found.without_effect), ("is unknown", found.unknown)):
        for key in keys:
            print(f"rocketbox: {key} {what}", file=sys.stderr)
    return 0


def _read(file: Path | None) -> ApacheFile:
    return read_apache(read_properties(file.read_bytes()) if file else {})


def _values(found: ApacheFile) -> dict[str, object]:
    """Return typed values. Raises ConfigError that lists every problem."""
    values: dict[str, object] = {}
    problems = []
    for name, text in found.settings.items():
        try:
            values[name] = value_from_text(rules()[name], text)
        except ValueError as exc:
            problems.append(ConfigProblem(name, text, str(exc), None))
    if problems:
        raise ConfigError("the name server's file", problems)
    return values


def _shown(config: Config) -> str:
    return properties_text(namesrv_options(config)).decode()


def _as_toml(found: ApacheFile) -> str:
    lines = ["# for rocketbox.toml; `rocketbox serve` runs the name server\n"]
    for table in dict.fromkeys(name.partition(".")[0] for name in found.settings):
        lines.append(f"[{table}]\n")
        for name, text in found.settings.items():
            if name.startswith(f"{table}."):
                quoted = text if text.isdecimal() or text in ("true", "false") else f'"{text}"'
                lines.append(f"{name.partition('.')[2]} = {quoted}\n")
    return "".join(lines)
