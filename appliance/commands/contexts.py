"""Where commands go: named contexts for several boxes, kept in ~/.config/rocketbox/contexts.json (0600).

`rocketbox context add|use|list|remove`. What a line says itself comes first, then --context, ROCKETBOX_CONTEXT,
NAMESRV_ADDR, the context in use, and last the box on this machine.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from appliance.commands.tables import near
from netstack.client import ClientError
from netstack.client.errors import Unreachable
from netstack.client.links import host_and_port
from netstack.client.name_servers import name_servers
from uplink_spark.console import print_table

DONE, NOT_DONE = 0, 1
EXAMPLE = """examples:
  rocketbox context add kiosk-7 --namesrv 10.1.0.7:9876 --access-key ops-team --secret-stdin
  rocketbox context use kiosk-7
  rocketbox topics list --context kiosk-8
"""


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster and how to get in."""

    namesrv: str
    access_key: str = ""
    secret: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""


def contexts_file(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "rocketbox/contexts.json"


def load(path: Path) -> tuple[dict[str, Context], str]:
    """Return the contexts and the name of the one in use. Raises ClientError."""
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
        names = {item.name for item in fields(Context)}
        made = {
            str(name): Context(**{key: str(value) for key, value in row.items() if key in names})
            for name, row in read["contexts"].items()
        }
        return made, str(read.get("current", ""))
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ClientError(f"{path} cannot be read: {exc}; correct it, or remove it and add the contexts again") from exc


def save(path: Path, contexts: Mapping[str, Context], current: str) -> None:
    """Replace the file. Raises ClientError."""
    rows = {name: {key: value for key, value in asdict(each).items() if value} for name, each in contexts.items()}
    temporary = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            json.dump({"current": current, "contexts": rows}, out, indent=1)
        temporary.replace(path)
    except OSError as exc:
        raise ClientError(f"{path} cannot be written: {exc.strerror}") from exc


def chosen(name: str | None, environ: Mapping[str, str] = os.environ) -> Context | None:
    """Return the context to use, None without any. Raises ClientError for a name nobody added."""
    wanted = name or environ.get("ROCKETBOX_CONTEXT", "")
    if not wanted and environ.get("NAMESRV_ADDR"):
        return None
    contexts, current = load(contexts_file(environ))
    wanted = wanted or current
    if wanted and wanted not in contexts:
        raise ClientError(f"no context {wanted}{near(wanted, contexts)}; `rocketbox context list` shows them")
    return contexts.get(wanted)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog, parser.formatter_class = EXAMPLE, argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    added = actions.add_parser(
        "add",
        help="add a box or cluster, or change it",
        description="add a context, or change it; the first one is the one in use",
    )
    added.add_argument("name")
    added.add_argument("--namesrv", required=True, metavar="HOST:PORT[;…]")
    added.add_argument("--access-key", default="", metavar="NAME")
    added.add_argument("--secret-stdin", action="store_true", help="read the key's secret from standard input")
    for option, meaning in (("ca", "CA to trust"), ("cert", "own certificate"), ("key", "its key")):
        added.add_argument(f"--tls-{option}", default="", metavar="FILE", help=f"use TLS; {meaning}")
    for name, purpose in (("use", "make it the one in use"), ("remove", "remove it")):
        actions.add_parser(name, help=purpose, description=purpose).add_argument("name")
    listed = actions.add_parser("list", help="show all", description="show all contexts, never secrets")
    listed.add_argument("--json", action="store_true", help="one JSON object per line")


def run(arguments: argparse.Namespace) -> int:
    """Change or show the file of contexts."""
    path = contexts_file()
    try:
        contexts, current = load(path)
        if arguments.action == "list":
            return show(contexts, current, as_json=arguments.json)
        if arguments.action == "add":
            contexts[arguments.name] = _described(arguments)
            current = current or arguments.name
        elif (name := arguments.name) not in contexts:
            raise ClientError(f"no context {name}{near(name, contexts)}; `rocketbox context list` shows them")
        elif arguments.action == "use":
            current = arguments.name
        else:
            del contexts[arguments.name]
            current = "" if current == arguments.name else current
        save(path, contexts, current)
    except ClientError as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return NOT_DONE
    return DONE


def _check(address: str) -> None:
    try:
        host_and_port(address)
    except Unreachable as exc:
        raise ClientError(f"--namesrv {address}: {exc.reason}, such as 10.1.0.7:9876") from exc


def _described(arguments: argparse.Namespace) -> Context:
    secret = sys.stdin.readline().rstrip("\r\n") if arguments.secret_stdin else ""
    if arguments.access_key and not secret:
        raise ClientError("--access-key needs its secret: --secret-stdin")
    for address in name_servers(arguments.namesrv) or [""]:
        _check(address)
    files = [
        str(Path(each).absolute()) if each else "" for each in (arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    ]
    return Context(arguments.namesrv, arguments.access_key, secret, *files)


def show(contexts: Mapping[str, Context], current: str, *, as_json: bool) -> int:
    """List what there is."""
    for name, each in sorted(contexts.items()) if as_json else ():
        row = {"name": name, "namesrv": each.namesrv, "access_key": each.access_key, "tls": bool(each.tls_ca)}
        print(json.dumps({**row, "current": name == current}))
    if not as_json:
        rows = [
            ("*" if name == current else "", name, each.namesrv, each.access_key, "yes" if each.tls_ca else "")
            for name, each in sorted(contexts.items())
        ]
        print_table(("", "NAME", "NAMESERVER", "KEY", "TLS"), rows)
    return DONE
