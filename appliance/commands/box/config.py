"""`rocketbox config check|show|set|reference|template`: the same code that `serve` starts with."""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from appliance.access.guard import NAME_NETWORKS, allows_everybody, open_door, open_to, tls_files
from appliance.commands.settings import (
    INSTALLED,
    add_config_arguments,
    chosen_config,
    config_file,
    data_folder,
    machine_facts,
    read_config,
)
from appliance.configuration.config import Config, line_of, load_config, nearest
from appliance.configuration.config_rules import value_from_text
from appliance.configuration.settings import rules, tables
from appliance.configuration.settings_docs import explain, page, template, toml_value
from appliance.errors import ConfigError, ConfigProblem
from appliance.ports import activated
from appliance.sockets import check_opened, host_problem, unit_ports

WRONG_CONFIG = 78


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verbs.add_parser("check", help="check a file and print every error")
    check.add_argument("file", type=Path, nargs="?", metavar="FILE")
    show = verbs.add_parser("show", help="print every value in force")
    show.add_argument("--origin", action="store_true", help="also the source of each value")
    show.add_argument(
        "--explain", metavar="KEY", help="meaning, range and default of one key, for example store.quota_gib"
    )
    verbs.add_parser("reference", help="print docs/configuration.md: every key")
    verbs.add_parser("template", help="print a configuration file with every key commented out")
    change = verbs.add_parser("set", help="check a change and write it into the file")
    change.add_argument("change", metavar="TABLE.KEY=VALUE")
    change.add_argument("rest", nargs="*", help=argparse.SUPPRESS)  # of who leaves out the sign
    for verb in (check, show, change):
        add_config_arguments(verb)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb; return the exit code."""
    verbs = {
        "check": check,
        "show": show,
        "set": change,
        "reference": reference,
        "template": template_file,
    }
    try:
        print(verbs[arguments.verb](arguments).rstrip("\n"))
    except ConfigError as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return WRONG_CONFIG
    return 0


def check(arguments: argparse.Namespace) -> str:
    """Return that a file is right, and right on this machine. Raises ConfigError."""
    arguments.config = arguments.file or arguments.config
    data = data_folder(arguments)
    config, file = chosen_config(arguments, data), config_file(arguments)
    if tls_files(config, data)[0].exists():  # else it may be meant for another machine, or is made at the first start
        open_door(config, data)
    check_host(config.listen.host, str(file or "configuration"), read_config(file) if file else "")
    if file in (None, INSTALLED):
        check_opened(unit_ports(), activated(config))
    warned = f"\nwarning: {allows_everybody(networks)}; {NAME_NETWORKS}" if (networks := open_to(config)) else ""
    return f"{file or 'defaults'}: no problems{warned}"


def check_host(host: str, source: str, text: str) -> None:
    """Raise ConfigError when this machine cannot listen at `listen.host`, as `serve` would."""
    problem = host_problem(host)
    if problem is not None:
        raise ConfigError(source, [ConfigProblem("listen.host", host, problem, line_of(text, "listen", "host"))])


def show(arguments: argparse.Namespace) -> str:
    """Return every value, with its origin when asked."""
    if arguments.explain is not None:
        return explained(arguments.explain)
    config = chosen_config(arguments, data_folder(arguments))
    lines = []
    for name, value in values(config):
        line = f"{name} = {toml_value(value)}"
        lines.append(f"{line:60}  # {config.origins[name]}" if arguments.origin else line)
    return "\n".join(lines)


def reference(_: argparse.Namespace) -> str:
    """Return docs/configuration.md."""
    return page()


def template_file(_: argparse.Namespace) -> str:
    """Return a file with every key commented out."""
    return template()


def explained(name: str) -> str:
    """Return the reference of one key. Raises ConfigError that names the nearest key."""
    if name not in rules():
        raise ConfigError("command line", [ConfigProblem(name, None, f"unknown key{nearest(name, rules())}", None)])
    return explain(name)


def change(arguments: argparse.Namespace) -> str:
    """Write one value into the file, if the file is right with it. Raises ConfigError."""
    name, equals, text = arguments.change.partition("=")
    name = name.strip()
    rule = rules().get(name)
    if not equals or rule is None or arguments.rest:
        meant = f", as {name}={arguments.rest[-1]}" if arguments.rest else ""
        wrong = not equals or arguments.rest
        reason = f"write TABLE.KEY=VALUE in one word{meant}" if wrong else f"unknown key{nearest(name, rules())}"
        raise ConfigError("command line", [ConfigProblem(name, None, reason, None)])
    try:
        value = value_from_text(rule, text.strip())
    except ValueError as exc:
        raise ConfigError("command line", [ConfigProblem(name, text, str(exc), None)]) from exc
    if name == "listen.host":
        check_host(str(value), "command line", "")
    file = arguments.config or config_file(arguments) or INSTALLED
    if not file.parent.is_dir():
        reason = f"there is no folder {file.parent}; name the configuration of the box with --config FILE"
        raise ConfigError(str(file), [ConfigProblem("", None, reason, None)])
    before = read_config(file) if file.exists() else ""
    after = with_value(before, name, toml_value(value))
    config = load_config(after, source=str(file), facts=machine_facts(data_folder(arguments)))
    if file == INSTALLED:
        check_opened(unit_ports(), activated(config))
    replace_file(file, after)
    return f"{file}: {name} = {toml_value(value)}; restart the box to use it"


def values(config: Config) -> Iterator[tuple[str, object]]:
    """Yield "table.key" and value, in the order of the documentation."""
    for table, kind in tables().items():
        for name in kind.keys:
            yield f"{table}.{name}", getattr(getattr(config, table), name)


def with_value(text: str, name: str, spelled: str) -> str:
    """Return the file's text with one value changed or added; everything else stays as it was written."""
    table, key = name.split(".")
    lines, inside, table_end = text.splitlines(), "", None
    for at, line in enumerate(lines):
        head = re.match(r"\s*\[\s*([^\]\s]+)\s*\]", line)
        inside = head.group(1) if head else inside
        if inside == table and (head or line.strip()):
            table_end = at + 1
        if re.match(rf"\s*{re.escape(key if inside == table else name)}\s*=", line):
            lines[at] = f"{key if inside == table else name} = {spelled}"
            return "\n".join(lines) + "\n"
    if table_end is None:
        lines += ["", f"[{table}]"] if lines else [f"[{table}]"]
        table_end = len(lines)
    lines.insert(table_end, f"{key} = {spelled}")
    return "\n".join(lines) + "\n"


def replace_file(file: Path, text: str) -> None:
    """Replace a file so that a power cut leaves the old one or the new one. Raises ConfigError."""
    temporary = file.with_name(file.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(file)
        folder = os.open(file.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    except OSError as exc:
        step = "; run this as root" if isinstance(exc, PermissionError) else ""
        text = f"cannot be written: {exc.strerror}{step}"
        raise ConfigError(str(file), [ConfigProblem("", None, text, None)]) from exc
