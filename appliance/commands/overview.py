"""What only a help text or an error of the command line needs: commands in groups, and the nearest word to a typo."""

import argparse
import re
from collections.abc import Iterator, Mapping

from appliance.configuration.config import nearest

GROUPS: dict[str, tuple[str, ...]] = {
    "The box": ("serve", "status", "conditions", "doctor", "selftest", "safe", "config", "metrics", "page", "support"),
    "Messages": ("send", "consume", "tail", "request", "messages", "trace", "bench"),
    "The cluster": ("topics", "groups", "offsets", "clients", "brokers", "top", "context"),
    "Access": ("access", "tls"),
    "The store": ("fsck", "loss", "backup", "restore", "uplink", "replica", "group", "witness"),
    "Set-up and updates": ("provision", "fleet", "flash", "update", "factory", "device"),
    "Other": ("namesrv", "completion"),
}
CHOICE = re.compile(r"argument (\S+): invalid choice: '?([^' ]+)'? \(choose from (.*)\)", re.DOTALL)
UNKNOWN = re.compile(r"unrecognized arguments: (--[^\s=]+)")
NONE_GIVEN = "the following arguments are required: COMMAND"


def help_text(purposes: Mapping[str, str]) -> str:
    """Return `rocketbox --help`."""
    lines = ["usage: rocketbox [--help] [--version] COMMAND ...", "", "A RocketMQ appliance."]
    for title, names in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name:12} {purposes[name]}" for name in names)]
    return "\n".join([*lines, "", "rocketbox COMMAND --help describes one command and shows examples."])


def with_nearest(message: str, parser: argparse.ArgumentParser) -> str:
    """Return an error of argparse with the nearest command, verb or option, if there is one."""
    if message == NONE_GIVEN:
        return "no command given; rocketbox --help lists them"
    if found := CHOICE.match(message):
        place, word, choices = found.groups()
        known = re.findall(r"[\w.-]+", choices)
        if place == "COMMAND":
            return f"unknown command '{word}'{nearest(word, known)}; rocketbox --help lists them"
        return message + nearest(word, known)
    if unknown := UNKNOWN.match(message):
        return message + nearest(unknown[1], set(_options(parser)))
    return message


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the long options of a parser and its verbs."""
    for action in parser._actions:
        yield from (option for option in action.option_strings if option.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _options(inner)
