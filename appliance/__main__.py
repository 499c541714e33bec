"""`python -m appliance COMMAND`, installed as `rocketbox`: each command lives in a module of `appliance.commands`."""

import argparse
import faulthandler
import gc
import importlib
import os
import select
import sys
from collections.abc import Sequence
from typing import NoReturn

from appliance.compiled import leave_out
from appliance.later import load_later
from appliance.thread_names import no_search
from storage_driver.named_tuple import NamedTuple

ALSO = {"acl": "access"}  # names that people try
HELP = frozenset(("-h", "--help"))


class Command(NamedTuple):
    """A command: the module that has `add_arguments(parser)` and `run(arguments) -> exit code`, loaded when called."""

    module: str
    purpose: str
    small: bool = False  # whether it stays small rather than be fast


INTERRUPTED, UNUSABLE, WIDTH = 130, 2, 80
SERVING = frozenset(("serve", "witness", "device"))  # what they cannot reach they tell themselves, or it is a fault
GARBAGE, FEW = 20_000, 700  # new objects until a look: modules leave 1 MiB as they load; 700 are a tenth of their time
COMMANDS = {
    "serve": Command("appliance.commands.box.serve", "run the box: name server and broker"),
    "status": Command("appliance.commands.box.status", "health of the box and its reasons"),
    "conditions": Command("appliance.commands.box.conditions", "current problems of the box; mute known ones"),
    "selftest": Command("appliance.commands.box.selftest", "send one message through the running box"),
    "doctor": Command("appliance.commands.box.doctor", "diagnose this box and name the next step"),
    "safe": Command("appliance.commands.box.safe", "enter or leave safe mode"),
    "provision": Command("appliance.commands.device.provision", "set up the box at a serial port"),
    "fleet": Command("appliance.commands.device.fleet", "set up many boxes from a CSV file"),
    "flash": Command("appliance.commands.device.flash", "install a signed bundle, or write an image to a disk"),
    "update": Command(
        "appliance.commands.device.update", "on the box: install a signed bundle from a stick into the idle slot"
    ),
    "factory": Command("appliance.commands.device.factory", "write the serial number of a box and burn it in"),
    "device": Command("appliance.commands.device.device", "answer on the serial line, on the box"),
    "namesrv": Command(
        "appliance.commands.messaging.namesrv", "convert a name server configuration of Apache RocketMQ"
    ),
    "send": Command("appliance.commands.messaging.send", "send messages to a topic of any cluster"),
    "consume": Command("appliance.commands.messaging.consume", "consume a topic as a member of a group"),
    "tail": Command("appliance.commands.messaging.tail", "print the newest messages of a topic and follow it"),
    "request": Command("appliance.commands.messaging.request", "send a request and print its reply"),
    "topics": Command("appliance.commands.messaging.topics", "list, show, create, change and delete topics"),
    "groups": Command("appliance.commands.messaging.groups", "list, show, create, change and delete consumer groups"),
    "offsets": Command("appliance.commands.messaging.offsets", "show and reset the offsets of a group"),
    "clients": Command("appliance.commands.messaging.clients", "connected clients"),
    "messages": Command("appliance.commands.messaging.messages", "find messages by key, id or time; show one"),
    "trace": Command("appliance.commands.messaging.trace", "the path of one message"),
    "brokers": Command("appliance.commands.messaging.brokers", "the brokers of a cluster and their state"),
    "top": Command("appliance.commands.messaging.top", "busiest topics and slowest groups, live"),
    "context": Command("appliance.commands.contexts", "named boxes and clusters, and the one in use"),
    "completion": Command("appliance.commands.completion", "completion script for a shell"),
    "bench": Command("appliance.commands.messaging.bench", "measure the throughput of a cluster"),
    "uplink": Command("appliance.commands.box.uplink", "shipping of the log: state, pause, gaps, export to a stick"),
    "replica": Command("appliance.commands.box.replica", "a group of boxes: who leads, promote, demote"),
    "group": Command("appliance.commands.box.group", "a group of boxes: its files, its members, transfer"),
    "witness": Command(
        "appliance.commands.box.witness", "the vote of a group of two boxes, on a third machine", small=True
    ),
    "fsck": Command("storage_driver.fsck", "check a stopped store, salvage it, rebuild its queues"),
    "loss": Command("appliance.commands.box.loss", "lost acknowledged messages: count and queues"),
    "backup": Command("appliance.commands.box.backup", "copy the store of a box, running or not"),
    "restore": Command("appliance.commands.box.restore", "restore a backup into the data folder of a box"),
    "access": Command("appliance.commands.box.access", "keys and their permissions"),
    "tls": Command("appliance.commands.box.tls", "show or renew the certificate of the box"),
    "support": Command("appliance.commands.box.support", "one file for support, without secrets"),
    "metrics": Command("appliance.commands.box.metrics", "metrics of the box in Prometheus format"),
    "page": Command("appliance.commands.box.page", "address and token of the status page"),
    "config": Command("appliance.commands.box.config", "check, show or change the configuration"),
}


class Parser(argparse.ArgumentParser):
    """One whose errors name the nearest word that is known."""

    def error(self, message: str) -> NoReturn:
        from appliance.commands.overview import with_nearest

        super().error(with_nearest(message, self))

    def _get_formatter(self) -> argparse.HelpFormatter:
        """Return argparse's, told the width: it would ask shutil, which loads two compressors, with each argument."""
        return self.formatter_class(prog=self.prog, width=_columns() - 2)  # type: ignore[call-arg]


def _columns() -> int:
    """Return the width of the terminal, as shutil finds it."""
    try:
        return int(os.environ.get("COLUMNS", "")) or WIDTH
    except ValueError:
        pass
    try:
        return os.get_terminal_size(1).columns or WIDTH
    except OSError:
        return WIDTH


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        try:
            return _main(arguments)
        finally:  # help leaves by SystemExit
            sys.stdout.flush()
    except KeyboardInterrupt:  # of a command that has nothing to put away
        return INTERRUPTED
    except BrokenPipeError:
        if not _reader_gone():
            raise
        return 0


def _main(arguments: Sequence[str] | None) -> int:
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)
    if arguments is None:
        load_later()
        gc.set_threshold(GARBAGE)
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in given if not word.startswith("-")), None)
    if chosen in ALSO:
        given[given.index(chosen)] = chosen = ALSO[chosen]
    if chosen is None and given:
        return _without_command(given)
    parser = Parser(prog="rocketbox", description="A RocketMQ appliance.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, prog="rocketbox")
    asked = parser  # whose usage belongs to a complaint
    known = {chosen: COMMANDS[chosen]} if chosen in COMMANDS else COMMANDS  # a parser costs 0.4 ms
    for name, command in known.items():
        added = commands.add_parser(name, help=command.purpose, description=command.purpose)
        if name == chosen:
            if command.small:
                leave_out()
                gc.set_threshold(FEW)
            with no_search():
                module = importlib.import_module(command.module)
            asked = added
            module.add_arguments(added)
            added.set_defaults(run=module.run)
            if HELP.intersection(given):
                from appliance.commands.examples import add_examples
                from appliance.commands.exit_codes import epilog

                add_examples(name, added)
                added.epilog = f"{added.epilog}\n\n{epilog(name)}"
    if arguments is None:
        gc.freeze()  # a program of its own keeps what it has loaded: the first look at all that is 15 ms
    parsed, unknown = parser.parse_known_args(given)
    if unknown:
        asked.error(f"unrecognized arguments: {' '.join(unknown)}")
    return _run(parsed)


def _run(parsed: argparse.Namespace) -> int:
    """Run what the line asks for; a file or folder that this user may not use is told in one line."""
    try:
        return int(parsed.run(parsed))
    except PermissionError as exc:
        if exc.filename is None or parsed.command in SERVING:
            raise
        step = "run this as root or as the user the box runs as"
        print(f"rocketbox: {exc.filename}: {exc.strerror}; {step}", file=sys.stderr)
        return UNUSABLE


def _without_command(given: Sequence[str]) -> int:
    """Print the help or the version, or say which option is unknown; return the exit code."""
    if HELP.intersection(given):
        from appliance.commands.overview import help_text

        print(help_text({name: command.purpose for name, command in COMMANDS.items()}))
    elif "--version" in given:
        from appliance.version import package_version

        print(f"rocketbox {package_version()}")
    else:
        parser = Parser(prog="rocketbox", usage="rocketbox [--help] [--version] COMMAND ...")
        parser.add_argument("--version")
        parser.error(f"unrecognized arguments: {given[0]}")
    return 0


def _reader_gone() -> bool:
    """Tell whether nobody reads the output any more (`rocketbox … | head -1`); then what is left of it goes nowhere."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)  # a pipe without a reader is POLLERR, poll(2)
    gone = any(events & select.POLLERR for _, events in asked.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


if __name__ == "__main__":
    sys.exit(main())
