"""`rocketbox access ...`: who holds a key, and what it opens; 0 done, 1 not done."""

import argparse
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.access.access import accounts_path, changing, load_accounts
from appliance.admin import NAME, AdminRefused, AdminSilent, ask
from appliance.broker.access.accounts import WORDS, Account, AccountError, Accounts, perm_of, word_of
from appliance.broker.rights import Perm
from appliance.commands.box.status import health_path
from appliance.commands.settings import add_config_arguments, as_owner_of, chosen_config, data_folder, no_folder
from appliance.commands.tables import confirmed
from appliance.errors import ConfigError
from storage_driver.log.clock import wall_ms
from uplink_spark.bounds import amount
from uplink_spark.console import print_table

DONE, NOT_DONE = 0, 1
HOUR_MS = 3_600_000
EXAMPLE = """examples:
  rocketbox access add press-line --publish readings --subscribe commands --group press-line
  rocketbox access add ops-team --admin
  rocketbox access rotate press-line --keep-h 48
  rocketbox access import /opt/rocketmq/conf/plain_acl.yml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog, parser.formatter_class = EXAMPLE, argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, purpose in (("add", "create a key, or change its permissions"), ("rotate", "give a key a new secret")):
        made = actions.add_parser(name, help=purpose, description=purpose)
        made.add_argument("key", help="name of the key, 7 to 100 characters")
        made.add_argument("--secret-stdin", action="store_true", help="read the secret from standard input")
        _common(made)
        if name == "add":
            _permissions(made)
        else:
            made.add_argument(
                "--keep-h",
                type=amount(zero=True),
                default=24.0,
                metavar="H",
                help="time for which the old secret stays valid (24)",
            )
    revoke = actions.add_parser("revoke", help="revoke a key", description="revoke a key")
    revoke.add_argument("key")
    revoke.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    _common(revoke)
    _common(actions.add_parser("list", help="show all keys", description="show all keys, never their secrets"))
    white = actions.add_parser(
        "white", help="addresses that need no key for data", description="set or show these addresses"
    )
    white.add_argument(
        "pattern", nargs="*", help="10.0.0.9, 10.0.0.*, 10.0.0.10-20; without: show the list; -: empty it"
    )
    _common(white)
    take = actions.add_parser("import", help="import accounts from an Apache broker", description="plain_acl.yml")
    take.add_argument("file", type=Path)
    take.add_argument("--dry-run", action="store_true", help="only show what would be imported")
    _common(take)


def _permissions(parser: argparse.ArgumentParser) -> None:
    words = sorted(WORDS)
    parser.add_argument("--admin", action="store_true", help="may change topics, groups, offsets, accounts")
    parser.add_argument("--publish", action="append", default=[], metavar="TOPIC", help="topic it may send to")
    parser.add_argument("--subscribe", action="append", default=[], metavar="TOPIC", help="topic it may consume")
    parser.add_argument("--group", action="append", default=[], metavar="GROUP", help="group it may consume as")
    parser.add_argument("--deny", action="append", default=[], metavar="TOPIC", help="topic it has no access to")
    parser.add_argument(
        "--other-topics", choices=words, metavar="PERM", help="topics not listed: DENY, PUB, SUB, PUB|SUB"
    )
    parser.add_argument("--other-groups", choices=words, metavar="PERM", help="groups not listed: DENY or SUB")
    parser.add_argument(
        "--from", dest="addresses", metavar="PATTERN", help="addresses from which the key is valid; -: all"
    )
    parser.add_argument("--white", metavar="PATTERN", help="addresses from which the key needs no signature for data")


def _common(parser: argparse.ArgumentParser) -> None:
    add_config_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do one thing to the file of accounts, and have the running box look at it."""
    data = data_folder(arguments)
    path = accounts_path(data)
    if why := no_folder(data):
        if data.exists() or not _makes_key(arguments):
            print(f"rocketbox: access: {why}", file=sys.stderr)
            return NOT_DONE
        print(f"rocketbox: access: {data} is new: a box that starts with --data {data} has the key", file=sys.stderr)
    try:
        path = accounts_path(data, chosen_config(arguments, data).access.accounts)
        return ACTIONS[arguments.action](path, arguments)
    except (AccountError, ConfigError, ValueError) as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
    except OSError as exc:
        step = "run this as root or as the user the box runs as"
        print(f"rocketbox: {exc.filename or path}: {exc.strerror}; {step}", file=sys.stderr)
    return NOT_DONE


def _makes_key(arguments: argparse.Namespace) -> bool:
    """Return whether there may be keys after it where there were none: they are made before the first start, too."""
    return arguments.action in ("add", "import") or bool(getattr(arguments, "pattern", ()))


def add(path: Path, arguments: argparse.Namespace) -> int:
    """Make a key, or change what it opens; its secret stays."""
    secret = _secret(arguments)

    def added(now: Accounts) -> Accounts:
        before = now.keys.get(arguments.key)
        account = before or Account(arguments.key, secret)
        if before and arguments.secret_stdin:
            account = replace(account, secret=secret)
        return now.changed(wall_ms(), put=[_permitted(account, arguments)])

    was = arguments.key in load_accounts(path).keys
    after = _change(path, added, arguments)
    _show_key(after.keys[arguments.key], arguments, secret_too=not was or arguments.secret_stdin)
    return DONE


def _permitted(account: Account, arguments: argparse.Namespace) -> Account:
    topics = dict(account.topics)
    for name in arguments.publish:
        topics[name] = topics.get(name, Perm(0)) | Perm.PUB
    for name in arguments.subscribe:
        topics[name] = topics.get(name, Perm(0)) | Perm.SUB
    topics |= dict.fromkeys(arguments.deny, Perm(0))
    made = replace(
        account,
        admin=account.admin or arguments.admin,
        topics=topics,
        groups={**account.groups, **dict.fromkeys(arguments.group, Perm.SUB)},
        topic=perm_of(arguments.other_topics) if arguments.other_topics else account.topic,
        group=perm_of(arguments.other_groups) if arguments.other_groups else account.group,
        white=account.white if arguments.white is None else arguments.white,
        addresses=account.addresses if arguments.addresses is None else arguments.addresses.strip(" -"),
    )
    made.from_white("127.0.0.1")
    made.lives_at("127.0.0.1")
    return made


def rotate(path: Path, arguments: argparse.Namespace) -> int:
    """Give a key a new secret; the old one stays good for a while."""
    secret, until_ms = _secret(arguments), wall_ms() + int(arguments.keep_h * HOUR_MS)

    def rotated(now: Accounts) -> Accounts:
        return now.changed(wall_ms(), put=[_known(now, arguments.key).rotated(secret, until_ms)])

    _show_key(_change(path, rotated, arguments).keys[arguments.key], arguments, secret_too=True)
    return DONE


def revoke(path: Path, arguments: argparse.Namespace) -> int:
    """Take a key away; its requests are refused from then on."""
    _known(load_accounts(path), arguments.key)
    if not confirmed(f"Clients with key {arguments.key} will be refused.", arguments.yes):
        return NOT_DONE
    _change(path, lambda now: now.changed(wall_ms(), drop=[_known(now, arguments.key).name]), arguments)
    return DONE


def show(path: Path, arguments: argparse.Namespace) -> int:
    """List the keys without their secrets."""
    now = load_accounts(path)
    if arguments.json:
        rows = [_public(account) for _, account in sorted(now.keys.items())]
        print(json.dumps({"accounts": rows, "white": list(now.white)}))
        return DONE
    head = ("KEY", "ADMIN", "TOPICS", "GROUPS", "OTHERS", "WHITE", "OLD SECRET UNTIL")
    print_table(head, [_row(account) for _, account in sorted(now.keys.items())])
    if now.white:
        print(f"white list: {', '.join(now.white)}")
    return DONE


def _public(account: Account) -> dict[str, Any]:
    return {name: value for name, value in account.to_object().items() if name not in ("secret", "previous")}


def _row(account: Account) -> tuple[object, ...]:
    def listed(perms: Iterable[tuple[str, Perm]]) -> str:
        return " ".join(f"{name}={word_of(perm)}" for name, perm in perms) or "-"

    old = ""
    if account.previous and account.until_ms > wall_ms():
        old = time.strftime("%Y-%m-%d %H:%M", time.localtime(account.until_ms / 1000))
    others = f"{word_of(account.topic)}, {word_of(account.group)}"
    admin = "yes" if account.admin else ""
    return (
        account.name,
        admin,
        listed(account.topics.items()),
        listed(account.groups.items()),
        others,
        account.white,
        old,
    )


def white(path: Path, arguments: argparse.Namespace) -> int:
    """Set the addresses that need no key for data."""
    if arguments.pattern:
        patterns = [] if arguments.pattern == ["-"] else arguments.pattern

        def listed(now: Accounts) -> Accounts:
            return Accounts.from_object({**now.to_object(), "white": patterns, "changed_ms": wall_ms()})

        _change(path, listed, arguments)
    now = list(load_accounts(path).white)
    print(json.dumps(now) if arguments.json else "\n".join(now) or "the white list is empty")
    return DONE


def take(path: Path, arguments: argparse.Namespace) -> int:
    """Take over accounts and white list of an Apache broker; a key that is there already is replaced."""
    from appliance.access.apache_acl import read_apache_file

    accounts, addresses, warnings = read_apache_file(arguments.file)
    for warning in warnings:
        print(f"rocketbox: {warning}", file=sys.stderr)

    def taken(now: Accounts) -> Accounts:
        both = now.changed(wall_ms(), put=accounts)
        return Accounts.from_object({**both.to_object(), "white": list(dict.fromkeys([*now.white, *addresses]))})

    if not arguments.dry_run:
        _change(path, taken, arguments)
    names = [account.name for account in accounts]
    doing = "would be imported" if arguments.dry_run else "imported"
    print(json.dumps(names) if arguments.json else f"{len(names)} accounts {doing}: {', '.join(names)}")
    return DONE


def _known(now: Accounts, name: str) -> Account:
    if name not in now.keys:
        from appliance.commands.tables import near

        raise AccountError(f"no key {name}{near(name, now.keys)}")
    return now.keys[name]


def _secret(arguments: argparse.Namespace) -> str:
    return sys.stdin.readline().rstrip("\r\n") if arguments.secret_stdin else secrets.token_urlsafe(24)


def _change(path: Path, changed: Callable[[Accounts], Accounts], arguments: argparse.Namespace) -> Accounts:
    data = data_folder(arguments)
    with as_owner_of(data if path.is_relative_to(data) else path.parent), changing(path) as replace_file:
        after = changed(load_accounts(path))
        replace_file(after)
    try:
        ask(health_path(arguments).with_name(NAME), "access.reload")
    except (AdminSilent, AdminRefused):
        pass  # the box looks at the file itself, within seconds or at its next start
    return after


def _show_key(account: Account, arguments: argparse.Namespace, *, secret_too: bool) -> None:
    if arguments.json:
        print(json.dumps({**_public(account), **({"secret": account.secret} if secret_too else {})}))
        return
    print(f"key     {account.name}")
    print(f"secret  {account.secret}   (shown this once)" if secret_too else "secret  unchanged")


ACTIONS = {"add": add, "rotate": rotate, "revoke": revoke, "list": show, "white": white, "import": take}
