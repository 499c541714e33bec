"""One example at least for every command and verb; loaded when somebody asks for help."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

HEAD = "examples:"
# What no command says in its own description. Lines that begin with a command belong to it and to the verb they use.
FURTHER = """
rocketbox serve --config rocketbox.toml --data ./var
rocketbox status --json
rocketbox status --over-serial --port /dev/ttyUSB0
rocketbox conditions --json
rocketbox conditions mute group_without_member:billing
rocketbox conditions mute disk_filling --hours 24
rocketbox conditions unmute disk_filling
rocketbox selftest
rocketbox doctor --all
rocketbox doctor --over-serial --port /dev/ttyUSB0
rocketbox safe enter 'changing the disk'
rocketbox safe leave
rocketbox provision --port /dev/ttyUSB0 --name press-17 --site hall-3 --bundle rocketbox-1.2.0.rbx
rocketbox fleet apply boxes.csv --jobs 8
rocketbox flash app rocketbox-1.2.0.rbx --port /dev/ttyUSB0
rocketbox flash disk rocketbox-1.2.0.img.zst --to /dev/sdb --serial RBX-0042
rocketbox update /media/stick/rocketbox-1.2.0.rbx --reboot
rocketbox factory make RBX-0042 --model x1
rocketbox device --pty --root ./box
rocketbox namesrv -c namesrv.properties -p
rocketbox send readings '{"temperature": 21}' --keys press-7 --namesrv 10.1.0.7:9876
rocketbox consume readings --group billing --max 10
rocketbox tail readings
rocketbox request commands 'open the valve' --timeout 3
rocketbox bench --namesrv 10.1.0.7:9876
rocketbox topics list --json
rocketbox topics route readings
rocketbox topics change readings --queues 8
rocketbox topics change orders --type MIXED
rocketbox groups list
rocketbox groups change billing --retries 3
rocketbox groups change ledger --no-ordered
rocketbox offsets show billing
rocketbox context remove kiosk-7
rocketbox context list --json
rocketbox uplink status
rocketbox uplink pause
rocketbox uplink resume
rocketbox uplink ship-now
rocketbox uplink gaps --json
rocketbox uplink receipts
rocketbox uplink test
rocketbox uplink export --to /media/stick
rocketbox uplink import /media/stick
rocketbox uplink discard --before 1073741824 --reason 'the disk is full, the link is gone'
rocketbox uplink identity
rocketbox group status
rocketbox group transfer b
rocketbox group init press --dir keys a=10.1.0.11:10912 b=10.1.0.12:10912 c=10.1.0.13:10912
rocketbox group join d=10.1.0.14:10912
rocketbox group leave
rocketbox group remove c
rocketbox replica status
rocketbox replica promote
rocketbox replica promote --accept-loss --yes
rocketbox replica transfer b
rocketbox replica demote
rocketbox replica solo
rocketbox replica resync
rocketbox fsck /var/lib/rocketbox
rocketbox fsck /var/lib/rocketbox --salvage /media/stick/salvaged
rocketbox backup /media/stick/press-17
rocketbox loss --acknowledge
rocketbox restore /media/stick/press-17 --data /var/lib/rocketbox
rocketbox access revoke press-line
rocketbox access list --json
rocketbox access white 10.0.0.*
rocketbox tls make
rocketbox page
rocketbox config check rocketbox.toml
rocketbox config show --origin
rocketbox config show --explain store.quota_gib
rocketbox config reference
rocketbox config template > rocketbox.toml
rocketbox config set store.retention_h=48
"""


def add_examples(name: str, parser: argparse.ArgumentParser) -> None:
    """Give a command and each of its verbs their examples."""
    said, _, shown = (parser.epilog or "").partition(HEAD)
    own = [line.strip() for line in shown.splitlines() if line.strip()]
    known = [*own, *map(str.strip, FURTHER.splitlines())]
    _show(parser, said, [*own, *_of(name, known[len(own) :])])
    _add_to_verbs(name, parser, known)


def _add_to_verbs(path: str, parser: argparse.ArgumentParser, known: Sequence[str]) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, each in action.choices.items():
                said = (each.epilog or "").partition(HEAD)[0]
                _show(each, said, _of(f"{path} {verb}", known))
                _add_to_verbs(f"{path} {verb}", each, known)


def _of(path: str, known: Iterable[str]) -> list[str]:
    return [line for line in known if f"{line} ".startswith(f"rocketbox {path} ")]


def _show(parser: argparse.ArgumentParser, said: str, examples: Sequence[str]) -> None:
    parser.epilog = "\n\n".join(filter(None, (said.strip(), "\n  ".join((HEAD, *examples)))))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
